// Images of messages: chosen, pasted or dropped, made smaller, and kept in this browser. Messages
// have their ids only, since the place where conversations are kept is small.

import { element } from "./markdown.js";

const LARGEST = 2048; // pixels of the longer side: vision-language models take no more
const STORE = "images";
const unsaved = new Map(); // where the browser keeps nothing, and until it has kept them
let opened = null;

function database() {
  opened ??= new Promise((resolve, reject) => {
    const asked = indexedDB.open("satchel", 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore(STORE);
    asked.onsuccess = () => resolve(asked.result);
    asked.onerror = () => reject(asked.error);
  });
  return opened;
}

async function inStore(mode, does) {
  const transaction = (await database()).transaction(STORE, mode);
  const asked = does(transaction.objectStore(STORE));
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve(asked.result);
    transaction.onerror = transaction.onabort = () => reject(transaction.error);
  });
}

async function keep(id, url) {
  unsaved.set(id, url);
  try {
    await inStore("readwrite", (store) => store.put(url, id));
    unsaved.delete(id);
  } catch {
    // It is there until the page is closed.
  }
}

// The data URL of an image; null if it is not kept any more.
export async function imageUrl(id) {
  try {
    return unsaved.get(id) ?? (await inStore("readonly", (store) => store.get(id))) ?? null;
  } catch {
    return null;
  }
}

export function forgetImages(images) {
  for (const { id } of images ?? []) {
    unsaved.delete(id);
    inStore("readwrite", (store) => store.delete(id)).catch(() => {});
  }
}

async function smaller(file) {
  const picture = await createImageBitmap(file);
  const scale = Math.min(1, LARGEST / Math.max(picture.width, picture.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(picture.width * scale));
  canvas.height = Math.max(1, Math.round(picture.height * scale));
  const paper = canvas.getContext("2d");
  paper.fillStyle = "#fff"; // behind what is transparent
  paper.fillRect(0, 0, canvas.width, canvas.height);
  paper.drawImage(picture, 0, 0, canvas.width, canvas.height);
  picture.close();
  return canvas.toDataURL("image/jpeg", 0.92);
}

export function thumbnail(image, label) {
  const shown = element("img", { alt: label, class: "thumbnail" });
  imageUrl(image.id).then((url) => {
    if (url) shown.src = url;
    else shown.replaceWith(element("span", { class: "lost" }, `${label} is not kept any more`));
  });
  return shown;
}

export const labelOf = (image, index) => `Image ${index + 1}: ${image.name}`;

// The images of the message that is being written; `tell` takes a problem.
export class Attached {
  constructor(button, input, list, tell) {
    Object.assign(this, { images: [], button, list, tell, ready: Promise.resolve() });
    button.addEventListener("click", () => input.click());
    input.addEventListener("change", () => {
      this.add([...input.files]);
      input.value = "";
    });
    document.addEventListener("paste", (event) => this.offer(event, event.clipboardData));
    document.addEventListener("dragover", (event) => {
      if (!this.button.hidden && event.dataTransfer.types.includes("Files")) event.preventDefault();
    });
    document.addEventListener("drop", (event) => this.offer(event, event.dataTransfer));
  }

  offer(event, given) {
    const files = [...(given?.files ?? [])].filter((file) => file.type.startsWith("image/"));
    if (this.button.hidden || !files.length) return;
    event.preventDefault();
    this.add(files);
  }

  // One after the other, in the order in which they were given; `ready` is when all are there.
  add(files) {
    this.ready = this.ready.then(() => this.prepare(files));
  }

  async prepare(files) {
    for (const file of files) {
      try {
        const url = await smaller(file);
        const image = { id: `${Date.now()}-${Math.random()}`, name: file.name || "pasted" };
        await keep(image.id, url);
        this.images.push(image);
      } catch {
        this.tell(`${file.name} is not an image that this browser can read`);
      }
    }
    this.show();
  }

  // What a message takes along.
  take() {
    const taken = this.images;
    this.images = [];
    this.show();
    return taken;
  }

  show() {
    this.list.hidden = !this.images.length;
    this.list.replaceChildren(
      ...this.images.map((image, index) => {
        const label = labelOf(image, index);
        const drop = element("button", { type: "button", "aria-label": `Remove ${label}` }, "×");
        drop.addEventListener("click", () => {
          this.images.splice(index, 1);
          forgetImages([image]);
          this.show();
        });
        return element("li", {}, thumbnail(image, label), drop);
      }),
    );
  }
}

// A message as the server takes it, with its images before its text.
export async function asSent({ role, content, images }) {
  if (!images?.length) return { role, content };
  const urls = (await Promise.all(images.map(({ id }) => imageUrl(id)))).filter(Boolean);
  const shown = urls.map((url) => ({ type: "image_url", image_url: { url } }));
  return { role, content: [...shown, ...(content ? [{ type: "text", text: content }] : [])] };
}
