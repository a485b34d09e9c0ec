// Keeps the part of a page that changes up to date. Everything else works without this file.
"use strict";
(() => {
  // Where the row of pages is wider than the window, the one that is shown is to be seen in it.
  const here = document.querySelector("nav a[aria-current]");
  const show = () => { if (here) here.scrollIntoView({ block: "nearest", inline: "center" }); };
  window.addEventListener("resize", show);
  show();

  const page = document.body.dataset.live;
  const part = document.getElementById("live");
  const state = document.getElementById("live-state");
  if (!page || !part || !state || !window.EventSource) return;

  let source = null;
  let wanted = false;
  let busy = false;

  const say = (text) => { if (state.textContent !== text) state.textContent = text; };

  // A form that is open, or a field that is being written in, is not pulled away from anybody.
  const inUse = () => part.querySelector("details[open]") !== null;

  const keyOf = (element) => {
    if (!element || !part.contains(element)) return null;
    const own = element.id || (element.parentElement && element.parentElement.id);
    if (own) return "#" + CSS.escape(own) + (element.id ? "" : " > summary");
    const href = element.getAttribute("href");
    return href ? 'a[href="' + CSS.escape(href) + '"]' : null;
  };

  const swap = (text) => {
    const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("live");
    if (!fresh) { window.location.reload(); return; }
    if (fresh.innerHTML === part.innerHTML) return;
    const focus = keyOf(document.activeElement);
    const offsets = [...part.querySelectorAll(".scroll")].map((it) => it.scrollLeft);
    part.replaceChildren(...fresh.childNodes);
    part.querySelectorAll(".scroll").forEach((it, at) => { it.scrollLeft = offsets[at] || 0; });
    if (focus) {
      const again = part.querySelector(focus);
      if (again) again.focus({ preventScroll: true });
    }
  };

  const refresh = async () => {
    if (busy || inUse()) { wanted = true; return; }
    busy = true;
    wanted = false;
    try {
      const answer = await fetch(window.location.href, {
        headers: { "x-holdfast-part": "live" }, credentials: "same-origin", redirect: "manual",
      });
      if (answer.type === "opaqueredirect" || answer.status === 401) { window.location.reload(); return; }
      if (answer.ok) {
        const text = await answer.text();
        if (inUse()) wanted = true; else swap(text);
      }
    } catch {
      say("not live: the server does not answer");
    } finally {
      busy = false;
    }
  };

  const listen = () => {
    if (source) return;
    source = new EventSource("/live?page=" + encodeURIComponent(page));
    source.onopen = () => { say("live"); refresh(); };
    source.onmessage = refresh;
    source.addEventListener("over", () => window.location.reload());
    source.onerror = () => {
      say("not live: connecting");
      if (source.readyState === EventSource.CLOSED) {
        source = null;
        window.setTimeout(() => { if (!document.hidden) listen(); }, 5000);
      }
    };
  };

  const rest = () => {
    if (!source) return;
    source.close();
    source = null;
  };

  // Browsers allow few connections: a page that nobody looks at gives its own back.
  document.addEventListener("visibilitychange", () => { if (document.hidden) rest(); else listen(); });
  window.addEventListener("pagehide", rest);
  window.addEventListener("pageshow", () => { if (!document.hidden) listen(); });
  window.setInterval(() => { if (wanted) refresh(); }, 1000);

  // One form at a time, and Escape closes it.
  document.addEventListener("toggle", (event) => {
    const opened = event.target;
    if (!(opened instanceof HTMLDetailsElement) || !opened.open) return;
    document.querySelectorAll("details.form[open]").forEach((it) => { if (it !== opened) it.open = false; });
    const field = opened.querySelector("input:not([type=hidden]), select");
    if (field) field.focus();
  }, true);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    const open = document.querySelector("details.form[open]");
    if (open) { open.open = false; open.querySelector("summary").focus(); }
  });
})();
