/** Light or dark: the system's choice until somebody says otherwise. */
import { useEffect, useState } from "preact/hooks";

export type Theme = "light" | "dark";

const KEY = "gpuwhy-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();

export function theme(): Theme {
  const kept = localStorage.getItem(KEY);
  return kept === "light" || kept === "dark" ? kept : dark.matches ? "dark" : "light";
}

export function toggleTheme(): void {
  const next = theme() === "dark" ? "light" : "dark";
  if (next === (dark.matches ? "dark" : "light")) localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, next);
  apply();
}

export function apply(): void {
  document.documentElement.dataset.theme = theme();
  for (const listener of listeners) listener();
}

/** The theme, and a new drawing when it changes. */
export function useTheme(): Theme {
  const [now, setNow] = useState(theme);
  useEffect(() => {
    const update = () => setNow(theme());
    listeners.add(update);
    return () => void listeners.delete(update);
  }, []);
  return now;
}

/** A colour of the style sheet, for a canvas. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

dark.addEventListener("change", apply);
