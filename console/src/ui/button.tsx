import { Tooltip } from '@base-ui/react/tooltip'
import type { ComponentProps, MouseEvent, ReactNode } from 'react'
import styles from './button.module.css'
import overlay from './overlay.module.css'

type Looks = {
  readonly kind?: 'primary' | 'secondary' | 'ghost' | 'danger'
  readonly size?: 's' | 'm'
}

type ButtonProps = ComponentProps<'button'> & Looks & { readonly isBusy?: boolean }

/** Does something. While `isBusy` it says so, keeps the focus, and cannot be pressed again. */
export function Button({ kind = 'secondary', size = 'm', isBusy = false, children, ...rest }: ButtonProps) {
  return (
    <button type="button" {...rest} {...looks({ kind, size }, rest.className)} {...(isBusy && busy)}>
      {isBusy && <span className={styles.spinner} aria-hidden="true" />}
      {children}
    </button>
  )
}

/** `disabled` would take the focus off it; the submit of its form by `Enter` in a field is a click of it, too. */
const busy = {
  disabled: false,
  'aria-disabled': true,
  'aria-busy': true,
  onClick: (event: MouseEvent) => event.preventDefault(),
}

type IconButtonProps = Omit<ButtonProps, 'children'> & { readonly label: string; readonly children: ReactNode }

/** A button of one icon, with its name for screen readers and, as a tooltip, for everybody else. */
export function IconButton({ label, kind = 'ghost', size = 'm', isBusy, className, ...rest }: IconButtonProps) {
  return (
    <Tooltip.Root>
      <Tooltip.Trigger
        {...rest}
        {...looks({ kind, size }, `${styles.icon} ${className ?? ''}`)}
        {...(isBusy === true && busy)}
        type="button"
        aria-label={label}
      />
      <Tooltip.Portal>
        <Tooltip.Positioner sideOffset={6} className={overlay.positioner}>
          <Tooltip.Popup className={overlay.tooltip}>{label}</Tooltip.Popup>
        </Tooltip.Positioner>
      </Tooltip.Portal>
    </Tooltip.Root>
  )
}

/** Attributes that make a link or a trigger look like a button: `<Link {...looks({ kind: 'primary' })}>`. */
export function looks({ kind = 'secondary', size = 'm' }: Looks = {}, className = '') {
  return { className: `${styles.button} ${className}`, 'data-kind': kind, 'data-size': size }
}
