import { useMemo, useSyncExternalStore } from 'react'
import type { Theme } from '../../../clients/console-messages.ts'
import { useTheme } from '../app/theme.ts'

/** The tokens of ui/tokens.css that extensions are told: an interface, so names stay what they are. */
const told = [
  ...['paper', 'sheet', 'raised', 'sunken', 'hover', 'active', 'line', 'line-strong', 'line-field'],
  ...['ink', 'ink-2', 'ink-3', 'accent', 'accent-hover', 'accent-ink', 'accent-soft', 'accent-soft-ink'],
  ...['danger', 'danger-soft', 'danger-ink', 'warning-soft', 'warning-ink', 'info-soft', 'info-ink', 'focus'],
  ...['font', 'mono', 'text-xs', 'text-s', 'text-m', 'text-l', 'text-xl', 'text-2xl'],
  ...['s1', 's2', 's3', 's4', 's5', 's6', 's7', 'r1', 'r2', 'r3', 'control', 'control-s'],
]

const dark = window.matchMedia('(prefers-color-scheme: dark)')

function watch(listener: () => void): () => void {
  dark.addEventListener('change', listener)
  return () => dark.removeEventListener('change', listener)
}

/** How the console looks now, as frames are told it. */
export function useLook(): Theme {
  const chosen = useTheme()
  const isDark = useSyncExternalStore(watch, () => dark.matches)
  const scheme = chosen === 'system' ? (isDark ? 'dark' : 'light') : chosen
  return useMemo(() => {
    const style = getComputedStyle(document.documentElement)
    const tokens = Object.fromEntries(told.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]))
    return { scheme, tokens }
  }, [scheme])
}
