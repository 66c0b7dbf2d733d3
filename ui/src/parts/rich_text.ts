// Markdown as safe HTML. Text of a model and of data is not trusted: everything passes the sanitiser.

import DOMPurify from "dompurify";
import { Marked } from "marked";
import { isOwnTag } from "./number_marks";

const PURIFIER = DOMPurify(window);
PURIFIER.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName !== "A" || node.hasAttribute("data-figure")) return;
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer");
});

const MARKDOWN = new Marked({
  async: false,
  gfm: true,
  renderer: {
    html({ text }) {
      return isOwnTag(text.trim()) ? text : text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
    },
  },
});

export function renderMarkdown(text: string): string {
  return PURIFIER.sanitize(MARKDOWN.parse(text) as string, {
    ALLOWED_TAGS: [
      "a", "b", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "hr", "i", "li", "ol", "p", "pre",
      "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul", "span",
    ],
    ALLOWED_ATTR: ["href", "class", "title"],
    ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|#)/i,
    ALLOW_DATA_ATTR: true,
  });
}
