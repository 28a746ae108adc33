import { useSyncExternalStore } from 'react'

export type Theme = 'system' | 'light' | 'dark'

const name = 'daybook-console:theme'
const listeners = new Set<() => void>()

const stored = (): Theme => {
  const value = localStorage.getItem(name)
  return value === 'light' || value === 'dark' ? value : 'system'
}

/** Puts the theme that was chosen on the page. */
export function applyTheme(): void {
  const theme = stored()
  if (theme === 'system') delete document.documentElement.dataset.theme
  else document.documentElement.dataset.theme = theme
}

export function setTheme(theme: Theme): void {
  localStorage.setItem(name, theme)
  applyTheme()
  for (const listener of listeners) listener()
}

export function useTheme(): Theme {
  return useSyncExternalStore((listener) => {
    listeners.add(listener)
    return () => void listeners.delete(listener)
  }, stored)
}
