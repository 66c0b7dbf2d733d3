// Markdown as safe HTML. Text of a model and of data is not trusted: everything passes the sanitiser.

import DOMPurify from "dompurify";
import { marked } from "marked";

const PURIFIER = DOMPurify(window);
PURIFIER.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName !== "A" || node.hasAttribute("data-figure")) return;
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer");
});

export function renderMarkdown(text: string): string {
  const html = marked.parse(text, { async: false, gfm: true, breaks: false });
  return PURIFIER.sanitize(html, {
    ALLOWED_TAGS: [
      "a", "b", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "hr", "i", "li", "ol", "p", "pre",
      "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul", "span",
    ],
    ALLOWED_ATTR: ["href", "class", "data-figure", "title", "role", "tabindex"],
    ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|#)/i,
    ALLOW_DATA_ATTR: false,
  });
}
