// Dark or light: follows the system until the user chooses.

import type { Theme } from "./api";

const dark = matchMedia("(prefers-color-scheme: dark)");
let chosen: Theme | null = stored();
const listeners: ((theme: Theme) => void)[] = [];

function stored(): Theme | null {
  try {
    const value = localStorage.getItem("theme");
    return value === "light" || value === "dark" ? value : null;
  } catch {
    return null;
  }
}

export const theme = (): Theme => chosen ?? (dark.matches ? "dark" : "light");

export function onTheme(then: (theme: Theme) => void): void {
  listeners.push(then);
}

function apply(): void {
  document.documentElement.dataset["theme"] = theme();
  for (const then of listeners) then(theme());
}

export function start(button: HTMLButtonElement): void {
  onTheme((now) => {
    button.textContent = now === "dark" ? "Light" : "Dark";
    button.title = now === "dark" ? "Switch to light colours" : "Switch to dark colours";
  });
  button.addEventListener("click", () => {
    chosen = theme() === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("theme", chosen);
    } catch {
      // without storage, the choice lasts until the page is closed
    }
    apply();
  });
  dark.addEventListener("change", apply);
  apply();
}
