// How a message looks: its text, its reasoning, what it took, and what can be done with it.

import { labelOf, thumbnail } from "./images.js";
import { copyText, element, markdown } from "./markdown.js";

function stats(message) {
  const { usage, timings } = message.told ?? {};
  if (!timings) return message.stopped ? "stopped" : "";
  const parts = [`${timings.predicted_n} tokens`];
  if (timings.predicted_per_second) parts.push(`${timings.predicted_per_second.toFixed(1)} tok/s`);
  parts.push(`first after ${message.first.toFixed(2)} s`);
  const cached = usage?.prompt_tokens_details?.cached_tokens ?? 0;
  if (usage) parts.push(`${usage.prompt_tokens} of prompt, ${cached} from the cache`);
  if (message.told.reason === "length") parts.push("cut at the limit");
  return parts.join(" · ");
}

// `actions`: what the buttons do; `live`: whether the text is still coming.
export function messageView(message, actions, live) {
  const mine = message.role === "user";
  const body = element("div", { class: "body" });
  const who = mine ? "You" : "Model";
  const view = element("article", { class: message.role, "aria-label": who }, body);
  let reasoning = null;

  function update() {
    if (mine) {
      const images = (message.images ?? []).map((each, at) => thumbnail(each, labelOf(each, at)));
      const shown = images.length ? [element("div", { class: "images" }, ...images)] : [];
      body.replaceChildren(...shown, message.content);
    } else {
      if (message.reasoning && !reasoning) {
        reasoning = element("details", { class: "reasoning" }, element("summary", {}, "Reasoning"));
        reasoning.append(element("div"));
      }
      if (reasoning) reasoning.lastChild.replaceChildren(...markdown(message.reasoning));
      body.replaceChildren(...(reasoning ? [reasoning] : []), ...markdown(message.content));
      if (live && !message.content && !message.reasoning) body.append("…");
    }
    if (message.error) body.append(element("p", { class: "error", role: "alert" }, message.error));
  }

  function finish() {
    const tools = element("div", { class: "tools" });
    const button = (label, does, name = label) =>
      element("button", { type: "button", "aria-label": name, onclick: does }, label);
    const copy = button("Copy", () => copyText(message.content, copy), "Copy message");
    tools.append(copy);
    if (mine) tools.append(button("Edit", () => edit(), "Edit message"));
    else tools.append(button("Regenerate", actions.regenerate));
    const cut = message.stopped || message.told?.reason === "length";
    if (!mine && cut && message.content) tools.append(button("Continue", actions.goOn));
    tools.append(element("span", { class: "stats" }, stats(message)));
    if (message.time) {
      const time = new Date(message.time);
      view.title = time.toLocaleString();
      const short = time.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
      tools.append(element("time", { datetime: time.toISOString() }, short));
    }
    view.append(tools);
  }

  function edit() {
    const area = element("textarea", { class: "editor", "aria-label": "Edit message" });
    area.value = message.content;
    const done = () => view.replaceWith(messageView(message, actions, false).view);
    const save = () => (area.value.trim() ? actions.edit(area.value.trim()) : done());
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") done();
    });
    const buttons = element(
      "div",
      { class: "tools" },
      element("button", { type: "button", onclick: save }, "Send again"),
      element("button", { type: "button", onclick: done }, "Cancel"),
    );
    view.replaceChildren(area, buttons);
    area.focus();
  }

  update();
  if (!live) finish();
  return { view, update, finish };
}
