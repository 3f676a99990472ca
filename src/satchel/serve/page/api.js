// Talks to the server that this page came from.

const place = (path) => new URL(path, document.baseURI);

function headers(key) {
  return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

async function problem(response) {
  const told = await response.json().catch(() => null);
  const text = told?.error?.message ?? `the server answered with status ${response.status}`;
  const wait = response.headers.get("Retry-After");
  return new Error(wait ? `${text} (try again in ${wait} s)` : text);
}

export async function models(key) {
  const response = await fetch(place("v1/models"), { headers: headers(key) });
  if (!response.ok) throw Object.assign(await problem(response), { status: response.status });
  return (await response.json()).data;
}

// What is said in a recording.
export async function transcribe(recording, model, key) {
  const form = new FormData();
  form.append("file", recording, "speech.wav");
  form.append("model", model);
  const response = await fetch(place("v1/audio/transcriptions"), {
    method: "POST",
    headers: key ? { Authorization: `Bearer ${key}` } : {},
    body: form,
  });
  if (!response.ok) throw await problem(response);
  return (await response.json()).text;
}

// Each event of a stream, as it comes; events may be cut anywhere.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    let end;
    while ((end = held.indexOf("\n\n")) >= 0) {
      const line = held.slice(0, end);
      held = held.slice(end + 2);
      if (!line.startsWith("data: ")) continue;
      if (line === "data: [DONE]") return;
      yield JSON.parse(line.slice(6));
    }
  }
}

// Calls `onDelta` with each piece of the answer; gives usage and timings in the end.
export async function answer(request, key, signal, onDelta) {
  const response = await fetch(place("v1/chat/completions"), {
    method: "POST",
    headers: headers(key),
    body: JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  if (!response.ok) throw await problem(response);
  const told = {};
  for await (const event of events(response)) {
    if (event.error) throw new Error(event.error.message);
    if (event.usage) told.usage = event.usage;
    if (event.timings) told.timings = event.timings;
    const choice = event.choices[0];
    if (!choice) continue;
    if (choice.finish_reason) told.reason = choice.finish_reason;
    onDelta(choice.delta);
  }
  return told;
}
