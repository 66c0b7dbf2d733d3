// SQL for reading: line breaks and indentation. Nothing but white space between words changes, so it is still the code
// that ran.

/** Clauses that begin a line. */
const CLAUSES = /^(with|select|from|where|group by|having|window|qualify|order by|limit|offset|union all|union|intersect|except|(?:left|right|full|inner|cross|natural|anti|semi|asof|positional)(?: outer)? join|join)$/i;
/** Clauses whose parts have lines of their own, if they do not fit one. */
const LISTS = /^(with|select|group by|order by)$/i;
/** Words that join the word before them to one clause. */
const JOINED = /^(group by|order by|union all|(?:left|right|full|inner|cross|natural|anti|semi|asof|positional)(?: outer)? join|(?:left|right|full) outer)$/i;
const WIDTH = 56;

const TOKEN = /--[^\n]*|\/\*[\s\S]*?\*\/|'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\$(\w*)\$[\s\S]*?\$\1\$|[\p{L}_][\p{L}\p{N}_$]*|\d[\w.]*|\s+|[\s\S]/gu;

interface Token {
  text: string;
  /** Whether white space stood before it. */
  apart: boolean;
}

/** Return the query with its clauses on lines of their own; one that has lines already stays as it is. */
export function layOutSql(text: string): string {
  if (text.trim().includes("\n")) return text;
  const tokens = joinWords(tokensOf(text.trim()));
  if (tokens.some((token) => token.text.startsWith("--"))) return text;
  return layOut(tokens, 0);
}

function tokensOf(text: string): Token[] {
  const found: Token[] = [];
  let apart = false;
  for (const [part] of text.matchAll(TOKEN)) {
    if (/^\s+$/.test(part)) {
      apart = true;
      continue;
    }
    found.push({ text: part, apart });
    apart = false;
  }
  return found;
}

/** GROUP BY and LEFT JOIN are one word here. */
function joinWords(tokens: Token[]): Token[] {
  const found: Token[] = [];
  for (const token of tokens) {
    const last = found.at(-1);
    if (last && token.apart && JOINED.test(`${last.text} ${token.text}`)) last.text += ` ${token.text}`;
    else found.push({ ...token });
  }
  return found;
}

function layOut(tokens: Token[], depth: number): string {
  const flat = flatten(tokens);
  const clauses = split(tokens, (_, at) => beginsClause(tokens, at));
  if (depth > 0 && (clauses.length < 2 || flat.length + depth <= WIDTH / 2)) return flat;
  if (clauses.length < 2) return unfold(tokens, depth);
  return clauses.map((clause) => layOutClause(clause, depth)).join(`\n${" ".repeat(depth)}`);
}

/** Some words that begin clauses are parts of others: `t.limit`, `IS DISTINCT FROM`, `* EXCEPT`, `WITH TIME ZONE`. */
function beginsClause(tokens: Token[], at: number): boolean {
  const [word, before] = [tokens[at]?.text.toLowerCase() ?? "", tokens[at - 1]?.text.toLowerCase() ?? ""];
  if (!CLAUSES.test(word) || before === ".") return false;
  if (word === "with") return at === 0;
  return !(word === "from" && before === "distinct") && !(word === "except" && before === "*");
}

function layOutClause(clause: Token[], depth: number): string {
  const [head, ...rest] = clause as [Token, ...Token[]];
  const flat = flatten(clause);
  const parts = LISTS.test(head.text) ? splitAfter(rest, ",") : /^(where|having)$/i.test(head.text) ? splitConditions(rest) : [rest];
  if (flat.length + depth <= WIDTH && !holdsQuery(clause)) return flat;
  if (parts.length < 2) return unfold(clause, depth);
  const inner = depth + 2;
  return `${head.text}\n${parts.map((part) => " ".repeat(inner) + unfold(part, inner)).join("\n")}`;
}

/** The tokens on one line, but queries in parentheses and the branches of a long CASE on lines of their own. */
function unfold(tokens: Token[], depth: number): string {
  const long = flatten(tokens).length + depth > WIDTH;
  let text = "";
  for (let at = 0; at < tokens.length; at += 1) {
    const token = tokens[at] as Token;
    if (at > 0 && token.apart) text += long ? gapBefore(token, text, depth) : " ";
    text += token.text;
    if (token.text !== "(") continue;
    const end = closing(tokens, at);
    const inside = tokens.slice(at + 1, end);
    if (end < tokens.length && inside[0] && /^(select|with)$/i.test(inside[0].text)) {
      const inner = layOut(inside, depth + 2);
      text += inner.includes("\n") ? `\n${" ".repeat(depth + 2)}${inner}\n${" ".repeat(depth)}` : inner;
      at = end - 1;
    }
  }
  return text;
}

/** The white space before a word of a long line: a new line for a branch of CASE, and where the line is full. */
function gapBefore(token: Token, text: string, depth: number): string {
  if (/^(when|else)$/i.test(token.text)) return `\n${" ".repeat(depth + 2)}`;
  if (/^end$/i.test(token.text)) return `\n${" ".repeat(depth)}`;
  const line = text.length - text.lastIndexOf("\n") - 1 + (text.includes("\n") ? 0 : depth);
  return line + token.text.length > WIDTH ? `\n${" ".repeat(depth + 4)}` : " ";
}

function flatten(tokens: Token[]): string {
  return tokens.map((token, at) => (at > 0 && token.apart ? " " : "") + token.text).join("");
}

function holdsQuery(tokens: Token[]): boolean {
  return tokens.some((token, at) => token.text === "(" && /^(select|with)$/i.test(tokens[at + 1]?.text ?? "") && closing(tokens, at) - at > 8);
}

/** The position of the parenthesis that closes the one at `at`; the end if there is none. */
function closing(tokens: Token[], at: number): number {
  let depth = 0;
  for (let index = at; index < tokens.length; index += 1) {
    if (tokens[index]?.text === "(") depth += 1;
    if (tokens[index]?.text === ")") depth -= 1;
    if (depth === 0) return index;
  }
  return tokens.length;
}

/** Split before the tokens that begin a part, outside of parentheses. */
function split(tokens: Token[], begins: (token: Token, at: number) => boolean): Token[][] {
  const parts: Token[][] = [];
  let depth = 0;
  tokens.forEach((token, at) => {
    if (parts.length === 0 || (depth === 0 && begins(token, at))) parts.push([]);
    parts.at(-1)?.push(token);
    if (token.text === "(" || token.text === "[" || token.text === "{") depth += 1;
    if (token.text === ")" || token.text === "]" || token.text === "}") depth -= 1;
  });
  return parts;
}

function splitAfter(tokens: Token[], mark: string): Token[][] {
  return split(tokens, (_, at) => tokens[at - 1]?.text === mark);
}

/** Split before each AND and OR, but not the AND of BETWEEN, nor within CASE. */
function splitConditions(tokens: Token[]): Token[][] {
  let between = false;
  let cases = 0;
  return split(tokens, (token) => {
    const word = token.text.toLowerCase();
    if (word === "case") cases += 1;
    if (word === "end") cases = Math.max(0, cases - 1);
    if (word === "between") between = true;
    if (word === "and" && between) {
      between = false;
      return false;
    }
    return cases === 0 && (word === "and" || word === "or");
  });
}
