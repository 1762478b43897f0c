// Dark or light: as the system is, until someone says otherwise.

import type { Theme } from "./api";

const dark = matchMedia("(prefers-color-scheme: dark)");
let chosen: Theme | null = stored();
const listeners: ((theme: Theme) => void)[] = [];

function stored(): Theme | null {
  try {
    const found = localStorage.getItem("theme");
    return found === "light" || found === "dark" ? found : null;
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
      // then it lasts as long as the page
    }
    apply();
  });
  dark.addEventListener("change", apply);
  apply();
}
