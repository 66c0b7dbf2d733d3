"use strict";
(() => {
  const root = document.documentElement;
  const one = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];

  // The theme follows the system until the reader chooses one.
  const themes = ["auto", "light", "dark"];
  const stored = () => { try { return localStorage.getItem("etude-theme"); } catch { return null; } };
  let theme = themes.includes(stored()) ? stored() : "auto";
  const button = one("#theme");
  const applyTheme = () => {
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    button.textContent = { auto: "Auto", light: "Light", dark: "Dark" }[theme];
    button.setAttribute("aria-label", `Theme: ${theme}. Change it.`);
  };
  button.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    try { localStorage.setItem("etude-theme", theme); } catch { /* Private windows may not allow storage. */ }
    applyTheme();
  });
  applyTheme();

  // Packed text is raw deflate as base64.
  const unpack = async (text) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return new Response(stream).text();
  };
  const packs = new Map();
  const unfold = async (section) => {
    const position = section?.dataset.packed;
    if (!position) return;
    const [pack, at] = position.split(".");
    if (!packs.has(pack)) packs.set(pack, unpack(one(`#pack${pack}`).textContent).then(JSON.parse));
    const markup = (await packs.get(pack))[at];
    if (!section.dataset.packed) return;
    section.removeAttribute("data-packed");
    section.insertAdjacentHTML("beforeend", markup);
  };
  const sections = all("section.table");
  // With many tables the page shows one at a time.
  const folded = !!one("main[data-folded]");
  if (folded) root.classList.add("folds");
  if (!folded && sections.some((s) => s.hasAttribute("data-packed"))) {
    const watch = new IntersectionObserver((seen) => {
      for (const { isIntersecting, target } of seen) if (isIntersecting) { watch.unobserve(target); unfold(target); }
    }, { rootMargin: "600px" });
    for (const section of sections) watch.observe(section);
  }

  // Go to a table or a column: unpack its section and open its details.
  let goal = null, scrolling = 0;
  const visit = async (fragment, focus) => {
    const [kind, table] = fragment.split(".");
    if (kind === "g") { const group = document.getElementById(fragment); if (group) group.open = true; }
    if (kind !== "t" || !table) return;
    const section = document.getElementById(`t.${table}`);
    if (!section) return;
    goal = section;
    scrolling++;
    if (folded) for (const other of sections) other.classList.toggle("shown", other === section);
    await unfold(section);
    if (folded) mark();
    const target = document.getElementById(fragment) || section;
    for (const hit of all(".hit")) hit.classList.remove("hit");
    if (target.tagName === "DETAILS") { target.open = true; target.classList.add("hit"); }
    // Sections out of view have an estimated height; rendering them moves the target, so scroll again.
    for (let i = 0; i < 3; i++) {
      target.scrollIntoView({ block: "start", behavior: "instant" });
      await new Promise((done) => requestAnimationFrame(done));
    }
    scrolling--;
    if (focus) (one("summary", target) && target !== section ? one("summary", target) : target).focus({ preventScroll: true });
  };
  const arrive = () => visit(decodeURIComponent(location.hash.slice(1)), true);
  addEventListener("hashchange", arrive);

  // Highlight the current table in the list of tables.
  const entries = new Map(all("nav a").map((a) => [a.getAttribute("href").slice(1), a.parentElement]));
  let here = null;
  const mark = () => {
    let current = null;
    for (const section of sections) {
      if (folded ? !section.classList.contains("shown") : false) continue;
      if (!folded && section.getBoundingClientRect().top > innerHeight * 0.35) break;
      current = section;
    }
    if (current === here) return;
    if (here) entries.get(here.id)?.classList.remove("here");
    here = current;
    const entry = here && entries.get(here.id);
    if (!entry) return;
    entry.classList.add("here");
    const fold = entry.closest("details");
    if (fold) fold.open = true;
    const list = entry.closest("nav");
    const { top, bottom } = entry.getBoundingClientRect();
    if (top < 70 || bottom > innerHeight) list.scrollTop += top - innerHeight / 2;
  };
  let waiting = false;
  if (entries.size) {
    addEventListener("scroll", () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; mark(); });
    }, { passive: true });
  }
  if (location.hash) arrive();
  const inView = (section) => {
    const { top, bottom } = section.getBoundingClientRect();
    return bottom > 0 && top < innerHeight;
  };
  addEventListener("keydown", (event) => {
    if (!event.altKey || !["ArrowDown", "ArrowUp"].includes(event.key) || !sections.length) return;
    event.preventDefault();
    // Key presses may outrun scrolling, and the last tables cannot reach the top: use the goal while it is in view.
    const at = sections.indexOf(goal && (scrolling || inView(goal)) ? goal : here);
    const next = sections[Math.max(0, Math.min(sections.length - 1, at + (event.key === "ArrowDown" ? 1 : -1)))];
    visit(next.id, true);
    location.hash = next.id;
  });

  // Search names and values.
  const field = one("#q");
  if (field) {
    const list = one("#hits");
    const holder = one("#index");
    const say = one("#say");
    let index = null;
    const load = async () => {
      if (index) return;
      const text = holder.dataset.packed ? await unpack(holder.textContent) : holder.textContent;
      index = JSON.parse(text).map(([name, id, purpose, columns]) => ({
        name, id, low: name.toLowerCase(), note: purpose.toLowerCase(), purpose,
        columns: columns.map(([column, end, type, values, note]) => ({
          name: column, id: id + end, low: column.toLowerCase(), type, values, lows: values.map((v) => v.toLowerCase()), note: note.toLowerCase(),
        })),
      }));
    };
    const rank = (text, word) => !text.includes(word) ? 0 : text === word ? 4 : text.startsWith(word) ? 3 : text.split(/[^\p{L}\p{N}]+/u).some((w) => w.startsWith(word)) ? 2 : 1;
    const search = (query) => {
      const words = query.toLowerCase().split(/\s+/).filter(Boolean);
      const whole = words.join(" ");
      const found = [];
      for (const table of index) {
        const points = words.map((w) => rank(table.low, w) * 10 || (table.note.includes(w) ? 4 : 0));
        if (points.every(Boolean)) found.push({ score: 6 + points.reduce((a, b) => a + b, 0) / words.length, id: table.id, name: table.name, why: table.purpose });
        for (const column of table.columns) {
          let value = null;
          let score = 0;
          for (let i = 0; i < column.lows.length; i++) {
            const r = rank(column.lows[i], whole) * 8;
            if (r > score) { score = r; value = column.values[i]; }
          }
          const own = words.map((w) => rank(column.low, w) * 10 || (column.note.includes(w) ? 3 : 0));
          const shared = words.map((w, i) => own[i] || rank(table.low, w) * 3 || (column.lows.some((v) => v.includes(w)) ? 3 : 0));
          if (own.some(Boolean) && shared.every(Boolean)) {
            const points = shared.reduce((a, b) => a + b, 0) / words.length;
            if (points >= score) { score = points; value = null; }
          }
          if (score) found.push({ score, id: column.id, name: `${table.name}.${column.name}`, why: value === null ? column.type : null, value });
        }
      }
      found.sort((a, b) => b.score - a.score || a.name.length - b.name.length || (a.name < b.name ? -1 : 1));
      return found;
    };
    const lit = (text, words) => {
      const piece = document.createDocumentFragment();
      const low = text.toLowerCase();
      const word = words.find((w) => low.includes(w));
      const at = word && low.length === text.length ? low.indexOf(word) : -1;
      if (at < 0) { piece.append(text); return piece; }
      const mark = document.createElement("mark");
      mark.textContent = text.slice(at, at + word.length);
      piece.append(text.slice(0, at), mark, text.slice(at + word.length));
      return piece;
    };
    let hits = [];
    let chosen = 0;
    const close = () => { list.hidden = true; field.setAttribute("aria-expanded", "false"); field.removeAttribute("aria-activedescendant"); };
    const choose = (at) => {
      chosen = (at + hits.length) % hits.length;
      all("li", list).forEach((li, i) => li.setAttribute("aria-selected", String(i === chosen)));
      field.setAttribute("aria-activedescendant", `hit${chosen}`);
      list.children[chosen].scrollIntoView({ block: "nearest", behavior: "instant" });
    };
    const go = (hit) => {
      close();
      const fragment = `#${hit.id}`;
      if (location.hash === fragment) visit(hit.id, true); else location.hash = fragment;
    };
    const show = async () => {
      const query = field.value.trim();
      if (!query) { close(); return; }
      await load();
      if (field.value.trim() !== query) return;
      const found = search(query);
      hits = found.slice(0, 40);
      const words = [query.toLowerCase(), ...query.toLowerCase().split(/\s+/)];
      list.replaceChildren(...hits.map((hit, i) => {
        const li = document.createElement("li");
        li.id = `hit${i}`;
        li.setAttribute("role", "option");
        const name = document.createElement("span");
        name.append(lit(hit.name, words));
        const why = document.createElement("small");
        if (hit.value === null || hit.value === undefined) why.append(hit.why || "table");
        else why.append("value ", lit(hit.value, words));
        li.append(name, why);
        li.addEventListener("mousedown", (event) => { event.preventDefault(); go(hit); });
        return li;
      }));
      field.removeAttribute("aria-activedescendant");
      if (!hits.length) {
        const li = document.createElement("li");
        li.className = "none";
        li.setAttribute("role", "option");
        li.setAttribute("aria-disabled", "true");
        li.setAttribute("aria-selected", "false");
        li.textContent = "No match in the names and values on this page.";
        list.append(li);
      }
      list.hidden = false;
      field.setAttribute("aria-expanded", "true");
      say.textContent = hits.length ? `${found.length} results` : "No match";
      if (hits.length) choose(0);
    };
    field.addEventListener("input", show);
    field.addEventListener("focus", () => { load(); if (field.value.trim()) show(); });
    field.addEventListener("blur", close);
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { event.preventDefault(); if (list.hidden) field.blur(); else close(); }
      if (list.hidden || !hits.length) return;
      if (event.key === "ArrowDown") { event.preventDefault(); choose(chosen + 1); }
      if (event.key === "ArrowUp") { event.preventDefault(); choose(chosen - 1); }
      if (event.key === "Enter") { event.preventDefault(); go(hits[chosen]); }
    });
    addEventListener("keydown", (event) => {
      const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName || "");
      const asked = (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) || (event.key === "k" && (event.ctrlKey || event.metaKey));
      if (!asked) return;
      event.preventDefault();
      field.focus();
      field.select();
    });
  }

  // Point out the references of a table in the diagram.
  const map = one(".whole");
  if (map) {
    const point = (event) => {
      const box = event.target.closest?.("a[data-n]");
      const number = event.type === "pointerout" || event.type === "focusout" ? null : box?.dataset.n;
      map.classList.toggle("pointed", number !== null && number !== undefined);
      for (const link of all(".links g", map)) link.classList.toggle("on", number !== undefined && (link.dataset.a === number || link.dataset.b === number));
      const near = new Set(all(".links g.on", map).flatMap((g) => [g.dataset.a, g.dataset.b]));
      for (const other of all("a[data-n]", map)) other.classList.toggle("on", near.has(other.dataset.n) || other.dataset.n === number);
    };
    for (const kind of ["pointerover", "pointerout", "focusin", "focusout"]) map.addEventListener(kind, point);
  }

  // Copy a query.
  addEventListener("click", async (event) => {
    const copy = event.target.closest?.(".copy");
    if (!copy) return;
    const text = one("pre", copy.closest("figure")).textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Pages opened as files may have no clipboard access: select the text instead, so that the reader can copy it.
      getSelection().selectAllChildren(one("pre", copy.closest("figure")));
      copy.textContent = "Selected";
      return;
    }
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  });

  // Sort the overview.
  for (const head of all(".sortable thead th")) {
    const press = one("button", head);
    if (!press) continue;
    press.addEventListener("click", () => {
      const down = head.classList.contains("number") ? head.getAttribute("aria-sort") !== "descending" : head.getAttribute("aria-sort") === "ascending";
      for (const other of all("th", head.parentElement)) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const at = [...head.parentElement.children].indexOf(head);
      const body = one("tbody", head.closest("table"));
      const key = (row) => {
        const cell = row.children[at];
        return cell.dataset.v === undefined ? cell.textContent.toLowerCase() : Number(cell.dataset.v || -1);
      };
      const rows = [...body.rows].map((row) => [key(row), row]);
      rows.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1));
      body.append(...rows.map(([, row]) => row));
    });
  }

  // Open all details for printing.
  addEventListener("beforeprint", () => {
    for (const details of all("details:not([open])")) { details.open = true; details.dataset.shut = ""; }
  });
  addEventListener("afterprint", () => {
    for (const details of all("details[data-shut]")) { details.open = false; delete details.dataset.shut; }
  });
})();
