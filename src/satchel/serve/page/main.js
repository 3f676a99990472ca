// Brings the parts together: what is shown, what is asked, and what keys do.

import { answer, models } from "./api.js";
import { asSent, Attached, forgetImages } from "./images.js";
import { element } from "./markdown.js";
import { messageView } from "./message.js";
import { showMicrophone } from "./microphone.js";
import { conversations, download, newConversation, remove, save, settings } from "./store.js";

const $ = (id) => document.getElementById(id);
const NUMBERS = ["temperature", "top_p", "top_k", "max_tokens", "seed"];
let current = conversations[0] ?? newConversation();
let running = null; // the controller of the answer that is coming
let known = [];
const attached = new Attached($("add-image"), $("image-file"), $("attached"), showProblem);

function showTheme() {
  if (settings.theme) document.documentElement.dataset.theme = settings.theme;
  else delete document.documentElement.dataset.theme;
}

function showConversations() {
  $("conversations").replaceChildren(
    ...conversations.map((each) => {
      const title = each.title || "New conversation";
      const open = element("button", { class: "title", type: "button" }, title);
      open.addEventListener("click", () => select(each));
      const drop = element("button", { type: "button", "aria-label": `Delete ${title}` }, "×");
      drop.addEventListener("click", () => {
        if (each === current) running?.abort();
        for (const { images } of each.messages) forgetImages(images);
        remove(each);
        if (each === current) select(conversations[0] ?? newConversation());
        else showConversations();
      });
      return element("li", { "aria-current": String(each === current) }, open, drop);
    }),
  );
}

function select(conversation) {
  running?.abort();
  current = conversation;
  closeSidebar();
  showConversations();
  showMessages();
  $("text").focus();
}

function actions(index) {
  return {
    edit: (text) => {
      const { images } = current.messages[index];
      current.messages.length = index;
      send(text, images);
    },
    regenerate: () => {
      if (running) return;
      current.messages.length = index;
      showMessages();
      ask();
    },
    // Only the last answer can go on, and only one that was not done.
    goOn: () => !running && index === current.messages.length - 1 && ask(current.messages[index]),
  };
}

function showMessages() {
  const views = current.messages.map((m, index) => messageView(m, actions(index), false).view);
  const hello = element("p", { class: "empty" }, "Ask something. It stays on your machine.");
  $("log").replaceChildren(...(views.length ? views : [hello]));
  $("log").scrollTop = $("log").scrollHeight;
  showContext();
}

function showContext() {
  const used = current.messages.findLast((m) => m.told?.usage)?.told.usage.total_tokens ?? 0;
  const most = known.find((m) => m.id === $("model").value)?.max_model_len;
  $("context").textContent = most && used ? `${used} of ${most} tokens` : "";
}

async function request(asked, goesOn) {
  const messages = await Promise.all(asked.map(asSent));
  if (settings.system) messages.unshift({ role: "system", content: settings.system });
  const made = { model: $("model").value, messages };
  if (goesOn) made.continue_final_message = true;
  for (const name of NUMBERS) {
    const value = Number(settings[name]);
    if (settings[name] && Number.isFinite(value)) made[name] = value;
  }
  return made;
}

// An answer to the messages, or the rest of one that was stopped or cut.
async function ask(unfinished = null) {
  const conversation = current;
  const asked = [...conversation.messages];
  const message = unfinished ?? { role: "assistant", content: "", reasoning: "", time: Date.now() };
  if (!unfinished) conversation.messages.push(message);
  delete message.stopped;
  delete message.error;
  const log = $("log");
  const index = conversation.messages.indexOf(message);
  const shown = messageView(message, actions(index), true);
  if (unfinished) log.querySelectorAll(":scope > article")[index].replaceWith(shown.view);
  else log.append(shown.view);
  log.scrollTop = log.scrollHeight;
  log.setAttribute("aria-busy", "true"); // screen readers read the answer when it is whole
  const mine = (running = new AbortController());
  showBusy(true);
  const started = performance.now();
  let planned = 0;
  const draw = () => {
    planned = 0;
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
    shown.update();
    if (atEnd) log.scrollTop = log.scrollHeight;
  };
  try {
    message.told = await answer(await request(asked, unfinished), settings.key, mine.signal, (delta) => {
      if (!delta.content && !delta.reasoning_content) return;
      message.first ??= (performance.now() - started) / 1000;
      message.content += delta.content ?? "";
      message.reasoning += delta.reasoning_content ?? "";
      planned ||= requestAnimationFrame(draw);
    });
    message.first ??= (performance.now() - started) / 1000;
  } catch (error) {
    if (error.name === "AbortError") message.stopped = true;
    else message.error = error.message;
  }
  cancelAnimationFrame(planned);
  draw();
  shown.finish();
  if (running === mine) {
    running = null;
    showBusy(false);
  }
  log.removeAttribute("aria-busy");
  log.scrollTop = log.scrollHeight;
  if (conversations.includes(conversation)) save();
  showContext();
}

function showBusy(busy) {
  $("send").hidden = busy;
  $("stop").hidden = !busy;
}

function send(text, images = []) {
  if (running || (!text && !images.length)) return;
  current.messages.push({ role: "user", content: text, images, time: Date.now() });
  if (!current.title) current.title = text.slice(0, 60) || images[0].name;
  if (!conversations.includes(current)) conversations.unshift(current);
  save();
  showConversations();
  showMessages();
  ask();
}

function grow() {
  const area = $("text");
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight + 2}px`;
}

// What was said goes where the cursor is.
function dictate(said) {
  const area = $("text");
  const space = area.value && !area.value.endsWith(" ") ? " " : "";
  area.setRangeText(space + said, area.selectionStart, area.selectionEnd, "end");
  grow();
  area.focus();
}

function closeSidebar() {
  $("sidebar").classList.remove("open");
  $("toggle-sidebar").setAttribute("aria-expanded", "false");
}

async function loadModels() {
  try {
    known = await models(settings.key);
  } catch (error) {
    if (error.status === 401) return openSettings("This server asks for an API key.");
    $("log").replaceChildren(element("p", { class: "error", role: "alert" }, error.message));
    return setTimeout(loadModels, 3000); // it may be on its way
  }
  const chats = known.filter((model) => model.meta?.chat !== false);
  $("model").replaceChildren(
    ...chats.map((model) => element("option", { value: model.id }, model.id)),
  );
  showMicrophone($("speak"), known, () => settings.key, dictate, showProblem);
  if (chats.some((model) => model.id === settings.model)) $("model").value = settings.model;
  if ($("log").querySelector(":scope > .error")) showMessages();
  showContext();
  showWhetherItLooks();
}

function showProblem(problem) {
  $("log").append(element("p", { class: "error", role: "alert" }, problem));
  $("log").scrollTop = $("log").scrollHeight;
}

function showWhetherItLooks() {
  $("add-image").hidden = !known.find((m) => m.id === $("model").value)?.meta?.images;
}

function openSettings(title = "Settings") {
  const form = $("settings").querySelector("form");
  $("settings-title").textContent = title;
  for (const input of form.querySelectorAll("[name]")) input.value = settings[input.name] ?? "";
  $("settings").showModal();
}

$("settings").addEventListener("close", () => {
  if ($("settings").returnValue !== "save") return;
  for (const input of $("settings").querySelectorAll("[name]")) settings[input.name] = input.value;
  save();
  showTheme();
  loadModels();
});
$("composer").addEventListener("submit", async (event) => {
  event.preventDefault();
  await attached.ready;
  const text = $("text").value.trim();
  if (running || (!text && !attached.images.length)) return;
  $("text").value = "";
  grow();
  send(text, attached.take());
});
$("text").addEventListener("input", grow);
$("text").addEventListener("keydown", (event) => {
  // On phones Enter is for new lines: there is no Shift to hold.
  const touch = matchMedia("(pointer: coarse)").matches;
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !touch) {
    event.preventDefault();
    $("composer").requestSubmit();
  }
});
$("stop").addEventListener("click", () => running?.abort());
$("new-chat").addEventListener("click", () => select(newConversation()));
$("export").addEventListener("click", download);
$("open-settings").addEventListener("click", () => openSettings());
$("model").addEventListener("change", () => {
  settings.model = $("model").value;
  save();
  showContext();
  showWhetherItLooks();
});
$("toggle-sidebar").addEventListener("click", () => {
  const open = $("sidebar").classList.toggle("open");
  $("toggle-sidebar").setAttribute("aria-expanded", String(open));
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !$("settings").open) {
    running?.abort();
    closeSidebar();
  }
  if (event.key === "O" && event.ctrlKey && event.shiftKey) {
    event.preventDefault();
    select(newConversation());
  }
});

showTheme();
showConversations();
showMessages();
loadModels();
