import { Menu as Base } from '@base-ui/react/menu'
import { Popover as BasePopover } from '@base-ui/react/popover'
import type { ReactElement, ReactNode } from 'react'
import styles from './overlay.module.css'

export type MenuEntry =
  | 'separator'
  | {
      readonly label: ReactNode
      readonly icon?: ReactNode
      /** Keys that do the same. */
      readonly keys?: string
      readonly onSelect: () => void
      readonly isDangerous?: boolean
      readonly isDisabled?: boolean
      /** For one of several that is on. */
      readonly isChecked?: boolean
    }

type MenuProps = {
  /** The button that opens it. */
  readonly trigger: ReactElement<Record<string, unknown>>
  readonly title?: string
  readonly entries: readonly MenuEntry[]
  readonly align?: 'start' | 'center' | 'end'
}

/** Things to do, behind a button. */
export function Menu({ trigger, title, entries, align = 'start' }: MenuProps) {
  return (
    <Base.Root>
      <Base.Trigger render={trigger} />
      <Base.Portal>
        <Base.Positioner className={styles.positioner} sideOffset={4} align={align}>
          <Base.Popup className={styles.menu}>
            {title !== undefined && <div className={styles.menuLabel}>{title}</div>}
            {entries.map((entry, place) =>
              entry === 'separator' ? (
                <Base.Separator key={`separator-${String(place)}`} className={styles.separator} />
              ) : (
                <Base.Item
                  key={`${String(place)}`}
                  className={styles.menuItem}
                  data-danger={entry.isDangerous}
                  disabled={entry.isDisabled}
                  onClick={entry.onSelect}
                >
                  {entry.icon}
                  <span>{entry.label}</span>
                  {entry.isChecked === true && (
                    <span>
                      ✓<span className="visually-hidden">on</span>
                    </span>
                  )}
                  {entry.keys !== undefined && <Keys>{entry.keys}</Keys>}
                </Base.Item>
              ),
            )}
          </Base.Popup>
        </Base.Positioner>
      </Base.Portal>
    </Base.Root>
  )
}

type PopoverProps = {
  readonly trigger: ReactElement<Record<string, unknown>>
  readonly title: string
  readonly children: ReactNode
  readonly align?: 'start' | 'center' | 'end'
  readonly isOpen?: boolean
  readonly onOpenChange?: (isOpen: boolean) => void
}

/** A small page beside a button. */
export function Popover({ trigger, title, children, align = 'start', isOpen, onOpenChange }: PopoverProps) {
  return (
    <BasePopover.Root
      {...(isOpen !== undefined && { open: isOpen })}
      {...(onOpenChange !== undefined && { onOpenChange: (open: boolean) => onOpenChange(open) })}
    >
      <BasePopover.Trigger render={trigger} />
      <BasePopover.Portal>
        <BasePopover.Positioner className={styles.positioner} sideOffset={4} align={align} collisionPadding={8}>
          <BasePopover.Popup className={styles.popover} aria-label={title}>
            {children}
          </BasePopover.Popup>
        </BasePopover.Positioner>
      </BasePopover.Portal>
    </BasePopover.Root>
  )
}

/** Keys to press, as they are printed: `Ctrl K`. */
export function Keys({ children }: { readonly children: string }) {
  return <kbd style={{ color: 'var(--ink-3)', fontSize: 'var(--text-xs)' }}>{children}</kbd>
}
