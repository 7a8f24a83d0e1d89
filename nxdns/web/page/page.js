"use strict";

// What comes from the server is text: nothing here makes markup of it. Elements are kept from one
// refresh to the next and only changed, so that focus, scrolling, what is unfolded and what a
// screen reader is reading stay where they are.

const REFRESH_MS = 2000;
const PATIENCE_MS = 8000;
// Episodes are read when the open ones change, and now and then for those that came and went.
const DIAGNOSTICS_EVERY = 30;
const SVG = "http://www.w3.org/2000/svg";
const PHASES = [
  ["queue", "waiting in line"], ["dial", "connecting"], ["tls", "TLS handshake"],
  ["send", "sending"], ["first_byte", "waiting for the answer"], ["rest", "reading the rest"],
];
const PHASE_WORDS = new Map([...PHASES, ["none", "before any upstream"]]);
const WORDS = {
  received: "received", dropped_oversize: "dropped: too long", dropped_no_slot: "dropped: all places taken",
  dropped_not_allowed: "dropped: client not allowed", dropped_duplicate: "dropped: sent again meanwhile",
  dropped_handler: "dropped: malformed", receive_errors: "receive errors", send_errors: "send errors",
  accepted: "connections accepted", messages: "messages", rejected_at_capacity: "closed: all places taken",
  evicted: "closed: idle, for another client", replies_lost: "replies lost",
  rejected_not_allowed: "closed: client not allowed",
  accept_errors: "accept errors", connection_errors: "connection errors", idle_timeouts: "idle timeouts",
  queries: "answered by an upstream", dropped_malformed: "dropped: malformed", formerr: "format errors (FORMERR)",
  notimp: "not implemented (NOTIMP)", badvers: "EDNS version unknown (BADVERS)", refused: "zone transfers (REFUSED)",
  servfail: "failed (SERVFAIL)", truncated: "truncated for UDP", upstream_truncated: "truncated by an upstream, over TCP",
  cancelled: "cancelled",
};
const ALARMS = new Set(["dropped_no_slot", "rejected_at_capacity", "receive_errors", "send_errors", "accept_errors", "servfail"]);
const SEVERITY = { critical: ["Critical", "bad"], warning: ["Warning", "warn"], info: ["Note", "idle"] };

const byId = (id) => document.getElementById(id);

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function setAttr(node, name, value) {
  if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function makeSvg(tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

// One child of `parent` for each item, in order; kept by key, built once, updated every time.
function keyed(parent, items, keyOf, build, update) {
  const known = parent.known || (parent.known = new Map());
  const wanted = new Map();
  for (const item of items) {
    let key = keyOf(item);
    while (wanted.has(key)) key += " ";
    wanted.set(key, item);
  }
  for (const [key, node] of known) {
    if (!wanted.has(key)) { node.remove(); known.delete(key); }
  }
  let before = parent.firstElementChild;
  for (const [key, item] of wanted) {
    let node = known.get(key);
    if (!node) { node = build(item); known.set(key, node); }
    update(node, item);
    if (node === before) before = before.nextElementSibling;
    else parent.insertBefore(node, before);
  }
}

// --- words -------------------------------------------------------------------------------------

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const count = (value) => number.format(value);

function seconds(value) {
  if (value < 0.0005) return "0 ms";
  if (value < 0.01) return `${(value * 1000).toFixed(1)} ms`;
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  return value < 10 ? `${value.toFixed(1)} s` : `${Math.round(value)} s`;
}

function span(value) {
  const whole = Math.max(0, Math.round(value));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

const since = (earlier, at) => (Date.parse(at) - Date.parse(earlier)) / 1000;
const ago = (time, at) => (time ? `${span(since(time, at))} ago` : "never");
const clock = (time) => new Date(time).toLocaleString();

// --- pieces ------------------------------------------------------------------------------------

function facts(list, rows) {
  keyed(list, rows, (row) => row[0], (row) => {
    const pair = make("div");
    pair.value = make("dd");
    pair.append(make("dt", "", row[0]), pair.value);
    return pair;
  }, (pair, [, value, alarm]) => {
    setText(pair.value, value);
    pair.value.classList.toggle("alarm", Boolean(alarm));
    pair.classList.toggle("zero", value === "0" || value === "none");
  });
}

function histogram(svg, data) {
  const counts = data.counts, bounds = data.bounds_seconds;
  const total = counts.reduce((sum, value) => sum + value, 0);
  const most = Math.max(1, ...counts);
  const width = 240, height = 62, base = 48, step = width / counts.length;
  if (!svg.bars) {
    setAttr(svg, "viewBox", `0 0 ${width} ${height}`);
    setAttr(svg, "role", "img");
    svg.append(makeSvg("rect", { class: "base", x: 0, y: base, width, height: 1 }));
    svg.bars = counts.map((_, index) => {
      const bar = makeSvg("rect", { x: index * step + 1, width: step - 2, rx: 1 });
      svg.append(bar);
      return bar;
    });
    bounds.forEach((bound, index) => {
      if (![0.001, 0.01, 0.1, 1].includes(bound)) return;
      const text = makeSvg("text", { x: (index + 1) * step, y: height - 3, "text-anchor": "middle" });
      text.textContent = bound < 1 ? `${bound * 1000} ms` : `${bound} s`;
      svg.append(text);
    });
  }
  counts.forEach((value, index) => {
    const tall = value ? Math.max(2, (value / most) * (base - 2)) : 0;
    setAttr(svg.bars[index], "y", base - tall);
    setAttr(svg.bars[index], "height", tall);
  });
  const words = total
    ? `half within ${quantile(data, total, 0.5)}, 95 % within ${quantile(data, total, 0.95)}`
    : "nothing yet";
  setAttr(svg, "aria-label", `Histogram of ${count(total)} durations: ${words}`);
  return words;
}

function quantile(data, total, share) {
  let seen = 0;
  for (let index = 0; index < data.counts.length; index += 1) {
    seen += data.counts[index];
    if (seen >= share * total) {
      const bound = data.bounds_seconds[index];
      return bound === undefined ? `more than ${seconds(data.bounds_seconds.at(-1))}` : seconds(bound);
    }
  }
  return "";
}

function strip(svg, outcomes) {
  if (!svg.bars) {
    setAttr(svg, "viewBox", "0 0 256 34");
    setAttr(svg, "preserveAspectRatio", "none");
    setAttr(svg, "role", "img");
    svg.bars = Array.from({ length: 32 }, (_, index) => {
      const bar = makeSvg("rect", { x: index * 8 + 1, width: 6, rx: 1 });
      svg.append(bar);
      return bar;
    });
  }
  svg.bars.forEach((bar, index) => {
    const outcome = outcomes[31 - index];
    const [kind, tall] = outcome === "1" ? ["yes", 32] : outcome === "0" ? ["no", 11] : ["none", 3];
    setAttr(bar, "class", kind);
    setAttr(bar, "y", 34 - tall);
    setAttr(bar, "height", tall);
  });
  const failed = [...outcomes].filter((each) => each === "0").length;
  const last = outcomes ? `; the newest ${outcomes[0] === "1" ? "was answered" : "failed"}` : "";
  setAttr(svg, "aria-label", `Last ${outcomes.length} outcomes: ${outcomes.length - failed} answered, ${failed} failed${last}`);
}

function phases(svg, legend, bySeconds) {
  const total = PHASES.reduce((sum, [name]) => sum + (bySeconds[name] || 0), 0);
  if (!svg.bars) {
    setAttr(svg, "viewBox", "0 0 240 12");
    setAttr(svg, "preserveAspectRatio", "none");
    setAttr(svg, "aria-hidden", "true");
    svg.bars = PHASES.map((_, index) => {
      const bar = makeSvg("rect", { class: `k${index}`, y: 0, height: 12 });
      svg.append(bar);
      return bar;
    });
  }
  let x = 0;
  const shares = [];
  PHASES.forEach(([name, words], index) => {
    const share = total ? (bySeconds[name] || 0) / total : 0;
    setAttr(svg.bars[index], "x", (x * 240).toFixed(2));
    setAttr(svg.bars[index], "width", (share * 240).toFixed(2));
    x += share;
    if (share >= 0.005) shares.push({ index, text: `${words} ${Math.round(share * 100)} %` });
  });
  if (!total) shares.push({ index: 5, text: "nothing yet" });
  keyed(legend, shares, (each) => `phase ${each.index}`, (each) => {
    const item = make("li");
    item.words = make("span");
    const swatch = make("span", `swatch k${each.index}`);
    item.append(swatch, item.words);
    return item;
  }, (item, each) => setText(item.words, each.text));
}

// --- sections ----------------------------------------------------------------------------------

function showNotes(notes) {
  const box = byId("notes");
  const shown = notes.length ? notes : [{ key: "calm", calm: true }];
  keyed(box, shown, (note) => note.key, (note) => {
    if (note.calm) return make("p", "calm", "Nothing is wrong that shows here.");
    const card = make("article", "card note");
    const header = make("header");
    card.title_ = make("h3");
    card.badge = make("span", "badge");
    header.append(card.title_, card.badge);
    card.cause = make("p", "cause");
    card.lines = make("ul", "lines");
    card.todo = make("p", "do");
    card.append(header, card.cause, card.lines, card.todo);
    return card;
  }, (card, note) => {
    if (note.calm) return;
    const [word, tone] = SEVERITY[note.severity];
    setAttr(card, "data-severity", note.severity);
    setText(card.title_, note.title);
    setText(card.badge, word);
    setAttr(card.badge, "data-tone", tone);
    setText(card.cause, note.cause);
    setText(card.todo, note.what_to_do);
    card.lines.hidden = !note.details.length;
    keyed(card.lines, note.details, (line) => line, (line) => make("li", "", line), () => {});
  });
}

function stateOf(upstream, at) {
  if (!upstream.enabled) return ["disabled", "idle", "○"];
  if (upstream.tripped) {
    const left = upstream.backoff_until ? since(at, upstream.backoff_until) : 0;
    const next = left > 0 ? `left alone for ${span(left)}` : "tried again with the next query";
    return [`not trusted, ${next}`, "bad", "■"];
  }
  if (upstream.consecutive_failures) return ["trusted, its last exchange failed", "warn", "▲"];
  if (!upstream.successes_total && !upstream.failures_total) return ["trusted, not asked yet", "idle", "○"];
  return ["trusted", "good", "●"];
}

function buildUpstream() {
  const card = make("article", "card");
  const header = make("header");
  card.name = make("h3");
  card.badge = make("span", "badge state");
  header.append(card.name, card.badge);
  card.url = make("p", "url");
  card.strip = makeSvg("svg", { class: "strip" });
  card.error = make("p", "sub error");
  card.facts = make("dl", "facts");
  card.hist = makeSvg("svg", { class: "hist" });
  card.latency = make("p", "sub");
  card.phases = makeSvg("svg", { class: "phases" });
  card.legend = make("ul", "legend");
  card.append(
    header, card.url, card.strip, card.error, card.facts,
    make("h4", "", "How long exchanges take"), card.hist, card.latency,
    make("h4", "", "Where their time goes"), card.phases, card.legend,
  );
  return card;
}

function updateUpstream(card, upstream, at) {
  const [words, tone, mark] = stateOf(upstream, at);
  setText(card.name, upstream.name);
  setText(card.badge, `${mark} ${words}`);
  setAttr(card.badge, "data-tone", tone);
  setText(card.url, upstream.url);
  card.url.hidden = upstream.url === upstream.name;
  strip(card.strip, upstream.window);
  const rate = upstream.window ? `${Math.round(upstream.success_rate * 100)} % of the last ${upstream.window.length} answered` : "no outcome yet";
  const error = upstream.last_error ? `; last failure ${ago(upstream.last_error_at, at)}: ${upstream.last_error}` : "";
  setText(card.error, rate + error);
  const rcodes = Object.entries(upstream.rcodes).map(([name, value]) => `${name} ${count(value)}`).join(", ");
  const queued = upstream.queued_total;
  facts(card.facts, [
    ["In flight", `${upstream.in_flight} of ${upstream.slots}`, upstream.slots > 0 && upstream.in_flight >= upstream.slots],
    ["Waited in line", queued ? `${count(queued)}, ${seconds(upstream.queued_seconds_total / queued)} each` : "none"],
    ["Answered", count(upstream.successes_total)],
    ["Failed", count(upstream.failures_total)],
    ["Last answer", ago(upstream.last_success_at, at)],
    ["Open sessions", `${upstream.open_sessions}${upstream.serial ? ", one query each" : ""}`],
    ["Idle time it allows", upstream.idle_seconds === null ? "not stated" : seconds(upstream.idle_seconds)],
    ["Sessions dialled", count(upstream.dials_total)],
    ["Stale sessions recovered", count(upstream.reuse_recoveries_total)],
    ["Answers too late", count(upstream.late_answers_total)],
    ["Answers by RCODE", rcodes || "none yet", (upstream.rcodes.SERVFAIL || 0) > (upstream.rcodes.NOERROR || 0)],
  ]);
  setText(card.latency, histogram(card.hist, upstream.exchange_seconds));
  phases(card.phases, card.legend, upstream.phase_seconds);
}

function showQueries(seen) {
  const cards = [{ key: "handler", handler: seen.handler }];
  for (const listener of seen.listeners) cards.push({ key: `listener ${listener.address}`, listener });
  cards.push({ key: "house" });
  keyed(byId("queries"), cards, (each) => each.key, (each) => {
    const card = make("article", "card");
    card.name = make("h3");
    card.facts = make("dl", "facts");
    card.append(card.name, card.facts);
    if (each.handler) {
      card.hist = makeSvg("svg", { class: "hist" });
      card.latency = make("p", "sub");
      card.append(make("h4", "", "How long clients wait for an upstream"), card.hist, card.latency);
    }
    return card;
  }, (card, each) => {
    if (each.handler) return updateHandler(card, each.handler);
    if (each.listener) return updateListener(card, each.listener);
    return updateHouse(card, seen);
  });
}

// In the order of WORDS, what has no word of its own last.
const ORDER = Object.keys(WORDS);
const counters = (totals) => Object.entries(totals).sort(([one], [other]) => place(one) - place(other));
const place = (name) => (ORDER.includes(name) ? ORDER.indexOf(name) : ORDER.length);
const counter = ([name, value]) => [WORDS[name] || name, count(value), value > 0 && ALARMS.has(name)];

function updateHandler(card, handler) {
  setText(card.name, "Queries");
  const rows = counters(handler.totals).map(counter);
  for (const [phase, value] of Object.entries(handler.servfail_phases)) {
    if (value) rows.push([`SERVFAIL while ${PHASE_WORDS.get(phase) || phase}`, count(value)]);
  }
  facts(card.facts, rows);
  setText(card.latency, histogram(card.hist, handler.wait_seconds));
}

function updateListener(card, listener) {
  setText(card.name, `Listener ${listener.address}`);
  const drops = listener.udp_kernel_drops;
  const rows = [
    ["UDP in flight", `${listener.udp_in_flight} of ${listener.udp_capacity}`, listener.udp_in_flight >= listener.udp_capacity],
    ["UDP dropped by the kernel", drops === null ? "not known" : count(drops), drops > 0],
  ];
  for (const entry of counters(listener.udp)) {
    const [words, value, alarm] = counter(entry);
    rows.push([`UDP ${words}`, value, alarm]);
  }
  rows.push(["TCP connections open", `${listener.tcp_active} of ${listener.tcp_capacity}`, listener.tcp_active >= listener.tcp_capacity]);
  for (const entry of counters(listener.tcp)) {
    const [words, value, alarm] = counter(entry);
    rows.push([`TCP ${words}`, value, alarm]);
  }
  facts(card.facts, rows);
}

function updateHouse(card, seen) {
  setText(card.name, "This server");
  const store = seen.store, reload = seen.reload;
  const rows = [
    ["Episodes are kept", store.path ? `in ${store.path}` : "in memory"],
    ["Failed writes of episodes", count(store.write_failures_total), Boolean(store.failing)],
    ["Reloads", `${count(reload.ok_total)} done, ${count(reload.failed_total)} failed`, !reload.last_ok],
  ];
  for (const each of seen.missing_listeners) rows.push([`Listener ${each.address}`, `not yet: ${each.reason}`, true]);
  rows.push(["Web connections refused: all places taken", count(seen.http.rejected_at_capacity_total)]);
  for (const [reason, value] of Object.entries(seen.http.errors)) {
    if (value) rows.push([`Web errors: ${reason}`, count(value)]);
  }
  facts(card.facts, rows);
}

function showEpisodes(box, episodes, at, empty) {
  const shown = episodes.length ? episodes : [{ none: true }];
  keyed(box, shown, (each) => (each.none ? "none" : `${each.code} ${each.subject} ${each.opened_at}`), (each) => {
    if (each.none) return make("p", "calm");
    const card = make("article", "card episode");
    const header = make("header");
    card.name = make("h3");
    card.badge = make("span", "badge");
    header.append(card.name, card.badge);
    card.detail = make("p");
    card.times = make("p", "sub");
    card.append(header, card.detail, card.times);
    return card;
  }, (card, each) => {
    if (each.none) return setText(card, empty);
    setText(card.name, each.subject);
    setText(card.badge, each.resolved_at ? "● resolved" : "■ open");
    setAttr(card.badge, "data-tone", each.resolved_at ? "good" : "bad");
    setText(card.detail, each.detail);
    const times = each.occurrences === 1 ? "once" : `${count(each.occurrences)} times`;
    setText(card.times, each.resolved_at
      ? `From ${clock(each.opened_at)} for ${span(since(each.opened_at, each.resolved_at))}; seen ${times}.`
      : `Since ${clock(each.opened_at)}, for ${span(since(each.opened_at, at))}; seen ${times}, last ${ago(each.last_seen, at)}.`);
    if (each.flight && each.flight.length && !card.flight) {
      card.flight = flightRecord(each.flight, `The ${each.flight.length} exchanges before it, the newest first`, each.subject);
      card.append(card.flight);
    }
  });
}

function flightRecord(records, caption, subject) {
  const details = make("details");
  details.append(make("summary", "", `Flight record: ${records.length} exchanges`));
  details.addEventListener("toggle", () => {
    // Hundreds of rows that nobody looks at are not made.
    if (!details.open || details.table) return;
    details.table = flightTable(records, caption, subject);
    details.append(details.table);
  });
  return details;
}

function flightTable(records, caption, subject) {
  const box = make("div", "scroll");
  box.tabIndex = 0;
  setAttr(box, "role", "region");
  setAttr(box, "aria-label", `Flight record of ${subject}`);
  const table = make("table");
  table.append(make("caption", "", caption));
  const head = make("tr");
  for (const words of ["before", "slot", "session", "queue", "dial", "TLS", "send", "first byte", "rest", "ended in", "outcome"]) {
    const cell = make("th", "", words);
    cell.scope = "col";
    head.append(cell);
  }
  const thead = make("thead");
  thead.append(head);
  const body = make("tbody");
  for (const record of records) {
    const row = make("tr", record.failed ? "failed" : "");
    const age = record.session_seconds === null ? "none" : `${seconds(record.session_seconds)} old`;
    const cells = [`${record.seconds_ago.toFixed(2)} s`, String(record.slot), record.session_seconds === null ? age : `${record.reused ? "reused" : "fresh"}, ${age}`];
    for (const [name] of PHASES) {
      const spent = record.phase_seconds[name];
      cells.push(spent ? seconds(spent) : "–");
    }
    cells.push(PHASE_WORDS.get(record.ended_in) || record.ended_in, `${record.failed ? "✕ " : ""}${record.outcome}`);
    for (const text of cells) row.append(make("td", "", text));
    body.append(row);
  }
  table.append(thead, body);
  box.append(table);
  return box;
}

// --- the whole page ----------------------------------------------------------------------------

const STATUS = {
  ok: ["● working", "good"], degraded: ["▲ working, in part", "warn"], failing: ["■ failing", "bad"],
};
let previous = null;
let announced = "";

function showOverview(seen) {
  const [words, tone] = STATUS[seen.status];
  setText(byId("status"), words);
  setAttr(byId("status"), "data-tone", tone);
  document.title = `nxdns: ${words.slice(2)}`;
  const total = seen.listeners.reduce((sum, each) => sum + (each.udp.received || 0) + (each.tcp.messages || 0), 0);
  let rate = "";
  if (previous && previous.started === seen.started_at && seen.at !== previous.at) {
    rate = `${count(Math.max(0, total - previous.total) / since(previous.at, seen.at))} queries a second; `;
  }
  previous = { started: seen.started_at, at: seen.at, total };
  setText(byId("meta"), `${rate}up for ${span(since(seen.started_at, seen.at))}`);
  setText(byId("about"), `nxdns ${seen.version}, Python ${seen.python}`);
  showNotes(seen.notes);
  keyed(byId("upstreams"), seen.upstreams, (each) => each.url + each.name, buildUpstream, (card, each) => updateUpstream(card, each, seen.at));
  showQueries(seen);
  const summary = seen.notes.filter((note) => note.severity !== "info").map((note) => note.title).join(". ");
  if (summary !== announced) {
    announced = summary;
    setText(byId("live"), summary || "Nothing is wrong any more.");
  }
}

let diagnostics = { episodes: [] };
let diagnosticsState = "Not read yet.";
let episodesKnown = null;
let asking = false;
let turns = 0;
let latest = null;

function showAllEpisodes(seen) {
  const flights = new Map(diagnostics.episodes.map((each) => [`${each.subject} ${each.opened_at}`, each.flight]));
  const open = seen.open_episodes.map((each) => ({ ...each, flight: flights.get(`${each.subject} ${each.opened_at}`) }));
  showEpisodes(byId("open"), open, seen.at, "None is open: every upstream is trusted.");
  const resolved = diagnostics.episodes.filter((each) => each.resolved_at);
  showEpisodes(byId("resolved"), resolved, seen.at, diagnosticsState);
}

async function get(path) {
  const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
  if (!response.ok) throw new Error(`status ${response.status}`);
  return response.json();
}

let lostSince = null;

function showLost(lost) {
  const banner = byId("lost");
  if (!lost && lostSince !== null) setText(byId("live"), "The server answers again.");
  if (lost && lostSince === null) {
    lostSince = new Date();
    setText(banner, `The server has not answered since ${lostSince.toLocaleTimeString()}. What stands below is older. It is tried again every two seconds.`);
  }
  if (!lost) lostSince = null;
  banner.hidden = !lost;
  document.body.classList.toggle("stale", lost);
  if (lost) {
    setText(byId("status"), "○ not reached");
    setAttr(byId("status"), "data-tone", "idle");
    document.title = "nxdns: not reached";
  }
}

async function refresh() {
  try {
    await look();
  } finally {
    setTimeout(refresh, REFRESH_MS);
  }
}

async function look() {
  try {
    latest = await get("api/overview");
  } catch {
    showLost(true);
    return;
  }
  showLost(false);
  showOverview(latest);
  showAllEpisodes(latest);
  const known = JSON.stringify(latest.open_episodes.map((each) => [each.subject, each.opened_at]));
  if (!asking && (known !== episodesKnown || turns % DIAGNOSTICS_EVERY === 0)) readEpisodes(known);
  turns += 1;
}

// Beside the rest: the resolved ones are read from a disk, which may be slow, or gone.
async function readEpisodes(known) {
  asking = true;
  try {
    diagnostics = await get("api/diagnostics");
    diagnosticsState = "None so far.";
    episodesKnown = known;
  } catch {
    diagnosticsState = "They cannot be read now; they are tried again.";
  }
  asking = false;
  showAllEpisodes(latest);
}

refresh();
