// Conversations and settings, kept in this browser and nowhere else.

import { imageUrl } from "./images.js";

const CONVERSATIONS = "satchel.conversations";
const SETTINGS = "satchel.settings";

function read(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export const settings = read(SETTINGS, {});
export const conversations = read(CONVERSATIONS, []);

export function save() {
  try {
    localStorage.setItem(SETTINGS, JSON.stringify(settings));
    localStorage.setItem(CONVERSATIONS, JSON.stringify(conversations));
    return true;
  } catch {
    return false; // full, or not allowed: the page goes on without
  }
}

export function newConversation() {
  const first = conversations[0];
  if (first && !first.messages.length) return first;
  const made = { id: `${Date.now()}-${Math.random()}`, title: "", messages: [] };
  conversations.unshift(made);
  return made;
}

export function remove(conversation) {
  conversations.splice(conversations.indexOf(conversation), 1);
  save();
}

// With the images themselves, of which messages have the ids.
async function withImages(message) {
  if (!message.images?.length) return message;
  const find = async (image) => ({ ...image, url: await imageUrl(image.id) });
  return { ...message, images: await Promise.all(message.images.map(find)) };
}

export async function download() {
  const begun = conversations.filter((each) => each.messages.length).map(async (each) => {
    return { ...each, messages: await Promise.all(each.messages.map(withImages)) };
  });
  const text = JSON.stringify({ conversations: await Promise.all(begun) }, null, 1);
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = "satchel-conversations.json";
  link.click();
  URL.revokeObjectURL(address);
}
