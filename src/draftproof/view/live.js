const form = make("form"), ask = make("textarea"), most = make("input"), heat = make("input"), secret = make("input"), send = make("button", "", "Send"), stop = make("button", "", "Stop"), state = make("span", "faint");
ask.placeholder = "Ask the model something"; ask.setAttribute("aria-label", "Prompt"); ask.required = true; stop.type = "button"; stop.disabled = true; state.setAttribute("role", "status");
Object.assign(most, { type: "number", min: 1, value: 200 }); Object.assign(heat, { type: "number", min: 0, step: .1, value: 0 });
Object.assign(secret, { type: "password", placeholder: "if the server asks", autocomplete: "off", size: 14 });
const field = (name, input) => { const e = make("label", "faint", name + " "); e.append(input); return e; };
const line = make("div"); line.append(send, stop, field("tokens", most), field("temperature", heat), field("key", secret), state);
form.append(ask, line); place.before(form);
ask.addEventListener("keydown", event => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit(); });
let halt;
stop.addEventListener("click", () => halt?.abort());
form.addEventListener("submit", async event => {
  event.preventDefault(); if (send.disabled) return;
  send.disabled = true; stop.disabled = false; state.textContent = "reading the prompt …"; halt = new AbortController();
  try { await stream(ask.value); state.textContent = "done"; }
  catch (error) { state.textContent = error.name === "AbortError" ? "stopped" : error.message; }
  send.disabled = false; stop.disabled = true;
});
async function stream(prompt) {
  const body = { messages: [{ role: "user", content: prompt }], stream: true, return_rounds: true, logprobs: true, top_logprobs: 5,
    max_tokens: +most.value, temperature: +heat.value, stream_options: { include_usage: true } };
  const headers = { "Content-Type": "application/json" }; if (secret.value) headers.Authorization = "Bearer " + secret.value;
  const answer = await fetch("v1/chat/completions", { method: "POST", headers, body: JSON.stringify(body), signal: halt.signal });
  if (!answer.ok) throw new Error((await answer.json()).error?.message ?? `the server answers ${answer.status}`);
  const run = new Run({ name: prompt.slice(0, 80), target: "", method: "live", rule: null, num_prompt_tokens: 0, rounds: [] });
  runs.unshift(run); place.prepend(run.box); while (runs.length > 2) runs.pop().box.remove();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader(); let rest = "";
  for (;;) {
    const { value, done } = await reader.read(); if (done) break;
    const events = (rest + value).split("\n\n"); rest = events.pop();
    for (const text of events) if (text.startsWith("data: ") && text !== "data: [DONE]") take(run, JSON.parse(text.slice(6)));
  }
}
function take(run, part) {
  if (part.error) throw new Error(part.error.message);
  run.data.target = part.model ?? run.data.target;
  if (part.usage) { run.data.num_prompt_tokens = part.usage.prompt_tokens; run.summary(); }
  for (const choice of part.choices ?? []) {
    const rounds = choice.rounds ?? [], said = choice.logprobs?.content ?? [];
    let at = 0;
    for (const r of rounds) { // the parts of a stream and their rounds cover the same tokens, in order
      r.best = r.tokens.map((_, i) => said[at + i]?.top_logprobs.map(t => [t.token, Math.exp(t.logprob)])); at += r.tokens.length; }
    if (rounds.length) { run.push(rounds); state.textContent = "streaming"; run.text.scrollTop = run.text.scrollHeight; run.list.scrollTop = run.list.scrollHeight; }
  }
}
