const frames = [...document.querySelectorAll("g")].map((g) => ({
    g, x: Number(g.dataset.x), w: Number(g.dataset.w), rect: g.querySelector("rect"), text: g.querySelector("text"),
    name: g.querySelector("title").textContent.replace(/: \d+ \w+, [\d.]+ %$/, ""),
}));
for (const clicked of frames) {
    clicked.g.style.cursor = "pointer";
    clicked.g.addEventListener("click", () => {
        for (const frame of frames) {
            const from = Math.max(0, (frame.x - clicked.x) / clicked.w);
            const to = Math.min(1, (frame.x + frame.w - clicked.x) / clicked.w);
            const width = (to - from) * 1200;
            frame.g.style.display = width > 0.3 ? "" : "none";
            frame.rect.setAttribute("x", from * 1200);
            frame.rect.setAttribute("width", Math.max(0, width));
            frame.text.setAttribute("x", from * 1200 + 3);
            frame.text.textContent = frame.name.slice(0, Math.max(0, width / 7));
        }
    });
}
