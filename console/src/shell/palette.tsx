import { Autocomplete } from '@base-ui/react/autocomplete'
import { Dialog as Base } from '@base-ui/react/dialog'
import { useQuery } from '@tanstack/react-query'
import { useRouter } from '@tanstack/react-router'
import { CornerDownLeft, Keyboard, LogOut, Puzzle, Search, SunMoon, Table2, UserRound } from 'lucide-react'
import type { ReactNode } from 'react'
import { catalogQuery } from '../app/catalog.ts'
import { pages } from '../app/navigation.ts'
import { signOut, useMe } from '../app/session.ts'
import { setTheme } from '../app/theme.ts'
import { extensionsQuery } from '../extensions/extensions.ts'
import overlay from '../ui/overlay.module.css'
import { notifyError } from '../ui/toast.tsx'
import styles from './palette.module.css'

type Command = {
  readonly id: string
  readonly group: string
  readonly label: string
  readonly note?: string
  readonly icon: ReactNode
  readonly run: () => void
}

type PaletteProps = { readonly isOpen: boolean; readonly onClose: () => void; readonly onHelp: () => void }

/** Everything that can be gone to or done, by its name. */
export function Palette({ isOpen, onClose, onHelp }: PaletteProps) {
  const commands = useCommands(onHelp)
  const run = (command: Command | undefined) => {
    onClose()
    command?.run()
  }
  return (
    <Base.Root open={isOpen} onOpenChange={(open) => open || onClose()}>
      <Base.Portal>
        <Base.Backdrop className={overlay.backdrop} />
        <Base.Viewport className={overlay.viewport}>
          <Base.Popup className={`${overlay.dialog} ${styles.palette}`} aria-label="Search or go to">
            <Autocomplete.Root
              items={commands}
              open
              inline
              autoHighlight="always"
              keepHighlight
              itemToStringValue={(command: Command) => `${command.label} ${command.note ?? ''}`}
            >
              <div className={styles.field}>
                <Search aria-hidden="true" />
                <Autocomplete.Input
                  className={styles.input}
                  placeholder="Search or go to…"
                  aria-label="Search or go to"
                />
              </div>
              <Autocomplete.Empty className={styles.empty}>Nothing of this name</Autocomplete.Empty>
              <Autocomplete.List className={styles.list}>
                {(command: Command) => (
                  <Autocomplete.Item
                    key={command.id}
                    value={command}
                    className={overlay.menuItem}
                    onClick={() => run(command)}
                  >
                    {command.icon}
                    <span>{command.label}</span>
                    <small className={styles.group}>{command.group}</small>
                  </Autocomplete.Item>
                )}
              </Autocomplete.List>
              <div className={styles.foot} aria-hidden="true">
                <CornerDownLeft /> opens · Esc closes
              </div>
            </Autocomplete.Root>
          </Base.Popup>
        </Base.Viewport>
      </Base.Portal>
    </Base.Root>
  )
}

function useCommands(onHelp: () => void): readonly Command[] {
  const me = useMe()
  const router = useRouter()
  const { data: catalog } = useQuery(catalogQuery)
  const { data: extensions = [] } = useQuery(extensionsQuery)
  const go = (to: string) => () => void router.navigate({ to })
  const collections = [...(catalog?.values() ?? [])].sort(
    (a, b) =>
      Number(a.isSystem) - Number(b.isSystem) ||
      Number(a.isJunction) - Number(b.isJunction) ||
      a.label.localeCompare(b.label),
  )
  const leave = () => signOut().then(go('/sign-in'), notifyError)
  return [
    ...pages
      .filter(({ isFor }) => isFor(me))
      .flatMap(({ title, to, icon: Icon, sections = {} }) =>
        [[to, title, 'Page'], ...Object.entries(sections).map(([name, part]) => [`${to}/${name}`, part, title])].map(
          ([address = '', label = '', group = '']) => ({
            id: address,
            group,
            label,
            icon: <Icon aria-hidden="true" />,
            run: go(address),
          }),
        ),
      ),
    ...extensions
      .filter(({ page }) => page !== null)
      .map(({ name, title }) => ({
        id: `extension ${name}`,
        group: 'Extension',
        label: title,
        icon: <Puzzle aria-hidden="true" />,
        run: () => void router.navigate({ to: '/extensions/$name/$', params: { name, _splat: '' } }),
      })),
    ...collections.map(({ name, label }) => ({
      id: `collection ${name}`,
      group: 'Collection',
      label,
      ...(label !== name && { note: name }),
      icon: <Table2 aria-hidden="true" />,
      run: () => void router.navigate({ to: '/data/$collection', params: { collection: name } }),
    })),
    {
      id: 'account',
      group: 'Page',
      label: 'Your account',
      icon: <UserRound aria-hidden="true" />,
      run: go('/account'),
    },
    ...(['light', 'dark', 'system'] as const).map((theme) => ({
      id: `theme ${theme}`,
      group: 'Do',
      label: theme === 'system' ? 'Use the theme of the system' : `Use the ${theme} theme`,
      icon: <SunMoon aria-hidden="true" />,
      run: () => setTheme(theme),
    })),
    { id: 'help', group: 'Do', label: 'Show keyboard shortcuts', icon: <Keyboard aria-hidden="true" />, run: onHelp },
    { id: 'leave', group: 'Do', label: 'Sign out', icon: <LogOut aria-hidden="true" />, run: () => void leave() },
  ]
}
