import { useRouter } from '@tanstack/react-router'
import { useEffect, useRef } from 'react'
import { pages } from '../app/navigation.ts'
import { Dialog } from '../ui/dialog.tsx'
import styles from './shortcuts.module.css'
import { isApple } from './sidebar.tsx'

type Actions = { readonly openPalette: () => void; readonly openHelp: () => void }

/** Keys that work on every page. Those of one letter do not where somebody types. */
export function useShortcuts({ openPalette, openHelp }: Actions): void {
  const router = useRouter()
  const pending = useRef<{ key: string; at: number } | undefined>(undefined)
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.defaultPrevented) return
      if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === 'k') {
        event.preventDefault()
        return openPalette()
      }
      if (event.metaKey || event.ctrlKey || event.altKey || isTyping(event.target)) return
      const before = pending.current
      pending.current = { key: event.key, at: event.timeStamp }
      if (before?.key === 'g' && event.timeStamp - before.at < 1500) {
        const page = pages.find(({ key }) => key === event.key)
        if (page !== undefined) void router.navigate({ to: page.to })
      } else if (event.key === '?') openHelp()
      else if (event.key === '/') focusFilter(event)
    }
    window.addEventListener('keydown', onKey)
    return () => window.removeEventListener('keydown', onKey)
  }, [router, openPalette, openHelp])
}

/** The field of a page that narrows what it shows has `data-filter`. */
function focusFilter(event: KeyboardEvent): void {
  const field = document.querySelector<HTMLElement>('[data-filter]')
  if (field === null) return
  event.preventDefault()
  field.focus()
}

const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement &&
  (target.isContentEditable ||
    target.matches('input, textarea, select') ||
    target.closest('[role="dialog"], [role="menu"]') !== null)

const control = isApple ? '⌘' : 'Ctrl'

const groups: readonly { readonly title: string; readonly keys: readonly (readonly [string, string])[] }[] = [
  {
    title: 'Everywhere',
    keys: [
      [`${control} K`, 'Search or go to'],
      ['/', 'Narrow what the page shows'],
      ...pages.map(({ key, title }) => [`g ${key}`, title] as const),
      ['?', 'These shortcuts'],
      ['Esc', 'Close, or leave a field'],
    ],
  },
  {
    title: 'In a grid',
    keys: [
      ['Arrows', 'Go to another cell'],
      ['Enter', 'Open the record'],
      ['F2', 'Edit the cell'],
      ['Space', 'Select the row'],
      [`${control} A`, 'Select all loaded rows'],
      ['Page up, Page down', 'A screen up or down'],
      [`${control} Home, ${control} End`, 'The first, the last row'],
      [`${control} C`, 'Copy the value'],
      ['Delete', 'Delete the rows that are selected'],
    ],
  },
]

export function ShortcutHelp({ isOpen, onClose }: { readonly isOpen: boolean; readonly onClose: () => void }) {
  return (
    <Dialog isOpen={isOpen} onClose={onClose} title="Keyboard shortcuts">
      {groups.map(({ title, keys }) => (
        <section key={title} className={styles.group}>
          <h3>{title}</h3>
          <dl>
            {keys.map(([key, what]) => (
              <div key={key}>
                <dt>{what}</dt>
                <dd>
                  <kbd>{key}</kbd>
                </dd>
              </div>
            ))}
          </dl>
        </section>
      ))}
    </Dialog>
  )
}
