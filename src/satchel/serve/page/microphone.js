// Speech in place of typing: records until the button is pressed again, and puts the text into the
// message. It is there if the server has a model that hears.

import { transcribe } from "./api.js";

const RATE = 16000;

// 16-bit WAV, which every server can read.
function wave(pieces) {
  const samples = pieces.reduce((count, piece) => count + piece.length, 0);
  const view = new DataView(new ArrayBuffer(44 + 2 * samples));
  const text = (at, word) => [...word].forEach((c, i) => view.setUint8(at + i, c.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, 36 + 2 * samples, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, RATE, true);
  view.setUint32(28, 2 * RATE, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, "data");
  view.setUint32(40, 2 * samples, true);
  let at = 44;
  for (const piece of pieces) {
    for (const sample of piece) {
      view.setInt16(at, Math.max(-1, Math.min(1, sample)) * 32767, true);
      at += 2;
    }
  }
  return new Blob([view], { type: "audio/wav" });
}

async function record() {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  const context = new AudioContext({ sampleRate: RATE });
  const source = context.createMediaStreamSource(stream);
  const taker = context.createScriptProcessor(4096, 1, 1);
  const pieces = [];
  taker.onaudioprocess = (event) => pieces.push(event.inputBuffer.getChannelData(0).slice());
  source.connect(taker);
  taker.connect(context.destination);
  return async () => {
    for (const track of stream.getTracks()) track.stop();
    await context.close();
    return wave(pieces);
  };
}

// `known` are the server's models; `say` takes the text, `tell` a problem.
export function showMicrophone(button, known, key, say, tell) {
  const model = known.find((each) => each.meta?.speech);
  button.hidden = !model || !navigator.mediaDevices;
  let stop = null;
  const show = (state, label) => {
    button.dataset.state = state;
    button.setAttribute("aria-label", label);
    button.title = label;
  };
  show("idle", "Speak");
  button.onclick = async () => {
    try {
      if (!stop) {
        stop = await record();
        show("recording", "Stop listening");
        return;
      }
      const ended = stop;
      stop = null;
      show("busy", "Writing down what was said…");
      say((await transcribe(await ended(), model.id, key())).trim());
    } catch (error) {
      tell(error.message);
    }
    show("idle", "Speak");
  };
}
