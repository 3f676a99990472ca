// Markdown to elements. Nothing is ever parsed as HTML, so that what a model writes stays text.

const INLINE = new RegExp(
  [
    "(?<code>`+)(?<codeText>[\\s\\S]*?[^`])\\k<code>(?!`)",
    "\\[(?<label>[^\\]\\n]+)\\]\\((?<link>https?:\\/\\/[^\\s)]+)\\)",
    "(?<url>https?:\\/\\/[^\\s<>)\\]]*[^\\s<>)\\].,;:!?'\"])",
    "\\*\\*(?=\\S)(?<strong>[\\s\\S]*?\\S)\\*\\*",
    "~~(?=\\S)(?<strike>[\\s\\S]*?\\S)~~",
    "\\*(?=\\S)(?<em>[^*]*?\\S)\\*",
    "(?<![\\w])_(?=\\S)(?<em2>[^_]*?\\S)_(?![\\w])",
    "\\\\(?<escaped>[\\\\`*_{}\\[\\]()#+\\-.!~|>])",
  ].join("|"),
);

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function link(address, label) {
  return element("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, ...label);
}

function inline(text) {
  const parts = [];
  let found;
  while ((found = INLINE.exec(text))) {
    if (found.index) parts.push(text.slice(0, found.index));
    const g = found.groups;
    if (g.code) parts.push(element("code", {}, g.codeText.trim()));
    else if (g.label) parts.push(link(g.link, inline(g.label)));
    else if (g.url) parts.push(link(g.url, [g.url]));
    else if (g.strong) parts.push(element("strong", {}, ...inline(g.strong)));
    else if (g.strike) parts.push(element("s", {}, ...inline(g.strike)));
    else if (g.em || g.em2) parts.push(element("em", {}, ...inline(g.em || g.em2)));
    else parts.push(g.escaped);
    text = text.slice(found.index + found[0].length);
  }
  if (text) parts.push(text);
  return parts;
}

function codeBlock(language, lines) {
  const text = lines.join("\n");
  const copy = element("button", { type: "button", "aria-label": "Copy code" }, "Copy");
  copy.addEventListener("click", () => copyText(text, copy));
  return element(
    "div",
    { class: "code" },
    element("div", { class: "code-head" }, language || "text", copy),
    element("pre", {}, element("code", {}, text)),
  );
}

export async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without HTTPS there is no clipboard but the old one.
    const area = element("textarea", { class: "visually-hidden" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const before = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = before), 1500);
}

const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const RULE = /^\s{0,3}([-*_])(\s*\1){2,}\s*$/;
const TABLE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)+\|?\s*$/;

function cells(line) {
  return line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim());
}

// Lines to blocks, each with what follows it.
function blocks(lines) {
  const made = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const fence = line.match(/^(\s*)(`{3,}|~{3,})\s*([^`\s]*)[^`]*$/);
    const heading = line.match(/^(#{1,6})\s+(.*?)\s*#*$/);
    if (fence) {
      const body = [];
      const end = new RegExp(`^\\s*${fence[2][0]}{${fence[2].length},}\\s*$`);
      for (at++; at < lines.length && !end.test(lines[at]); at++) {
        body.push(lines[at].startsWith(fence[1]) ? lines[at].slice(fence[1].length) : lines[at]);
      }
      at++;
      made.push(codeBlock(fence[3], body));
    } else if (!line.trim()) {
      at++;
    } else if (heading) {
      made.push(element(`h${Math.min(heading[1].length, 4)}`, {}, ...inline(heading[2])));
      at++;
    } else if (RULE.test(line)) {
      made.push(element("hr"));
      at++;
    } else if (line.startsWith(">")) {
      const quoted = [];
      for (; at < lines.length && lines[at].startsWith(">"); at++) {
        quoted.push(lines[at].replace(/^>\s?/, ""));
      }
      made.push(element("blockquote", {}, ...blocks(quoted)));
    } else if (line.includes("|") && TABLE.test(lines[at + 1] ?? "")) {
      const row = (text, name) =>
        element("tr", {}, ...cells(text).map((cell) => element(name, {}, ...inline(cell))));
      const table = element("table", {}, element("thead", {}, row(line, "th")));
      const body = element("tbody");
      for (at += 2; at < lines.length && lines[at].includes("|"); at++) {
        body.append(row(lines[at], "td"));
      }
      table.append(body);
      made.push(element("div", { class: "table" }, table));
    } else if (ITEM.test(line)) {
      const [list, next] = listBlock(lines, at);
      made.push(list);
      at = next;
    } else {
      const text = [];
      for (; at < lines.length && lines[at].trim() && !starts(lines, at, text.length > 0); at++) {
        text.push(lines[at].trim());
      }
      made.push(element("p", {}, ...inline(text.join("\n"))));
    }
  }
  return made;
}

// Whether something else than a paragraph begins at a line.
function starts(lines, at, inside) {
  const line = lines[at];
  return inside && (/^(#{1,6}\s|>|\s*(```|~~~))/.test(line) || RULE.test(line) || ITEM.test(line));
}

function listBlock(lines, first) {
  const [, indent, mark] = lines[first].match(ITEM);
  const ordered = /\d/.test(mark);
  const list = element(ordered ? "ol" : "ul", ordered ? { start: parseInt(mark, 10) } : {});
  let at = first;
  while (at < lines.length) {
    const item = lines[at].match(ITEM);
    if (!item || item[1].length !== indent.length || /\d/.test(item[2]) !== ordered) break;
    const inner = [item[3]];
    for (at++; at < lines.length; at++) {
      const next = lines[at].match(ITEM);
      if (next && next[1].length <= indent.length) break;
      const blank = !lines[at].trim();
      if (blank && !/^\s+\S/.test(lines[at + 1] ?? "")) break;
      if (!blank && !next && !/^\s/.test(lines[at])) break;
      inner.push(lines[at].slice(Math.min(lines[at].search(/\S|$/), indent.length + 2)));
    }
    while (at < lines.length && !lines[at].trim() && ITEM.test(lines[at + 1] ?? "")) at++;
    const parts = blocks(inner);
    const plain = parts[0]?.tagName === "P" ? [...parts[0].childNodes, ...parts.slice(1)] : parts;
    list.append(element("li", {}, ...plain));
  }
  return [list, at];
}

export function markdown(text) {
  return blocks(text.replace(/\r\n?/g, "\n").split("\n"));
}
