import { Dialog as Base } from '@base-ui/react/dialog'
import { X } from 'lucide-react'
import { type ReactNode, type RefObject, useState } from 'react'
import { Button, looks } from './button.tsx'
import styles from './overlay.module.css'
import { bar } from './room.ts'
import { Problem } from './states.tsx'

type DialogProps = {
  readonly isOpen: boolean
  readonly onClose: () => void
  readonly title: ReactNode
  readonly description?: ReactNode
  readonly size?: 'm' | 'l' | 'xl'
  /** Buttons, the one that goes on last. */
  readonly footer?: ReactNode
  readonly children?: ReactNode
  /** The element that gets the focus; the first field unless given. */
  readonly initialFocus?: RefObject<HTMLElement | null>
}

/** A dialog over the page. Escape and a click beside it close it. */
export function Dialog({ isOpen, onClose, size = 'm', initialFocus, ...parts }: DialogProps) {
  return (
    <Base.Root open={isOpen} onOpenChange={(open) => open || onClose()}>
      <Base.Portal>
        <Base.Backdrop className={styles.backdrop} />
        <Base.Viewport className={styles.viewport}>
          <Base.Popup className={styles.dialog} data-size={size} {...(initialFocus && { initialFocus })}>
            <Inside {...parts} />
          </Base.Popup>
        </Base.Viewport>
      </Base.Portal>
    </Base.Root>
  )
}

export type DrawerProps = Omit<DialogProps, 'size'> & { readonly side?: 'left' | 'right'; readonly size?: 'm' | 'l' }

/** The same at the side of the page, for what is read beside it. */
export function Drawer({ isOpen, onClose, side = 'right', size = 'm', initialFocus: _focus, ...parts }: DrawerProps) {
  return (
    <Base.Root open={isOpen} onOpenChange={(open) => open || onClose()}>
      <Base.Portal>
        <Base.Backdrop className={styles.backdrop} />
        <Base.Viewport className={styles.drawerViewport} data-side={side}>
          <Base.Popup className={styles.drawer} data-size={size}>
            <Inside {...parts} />
          </Base.Popup>
        </Base.Viewport>
      </Base.Portal>
    </Base.Root>
  )
}

function Inside({ title, description, footer, children }: Omit<DialogProps, 'isOpen' | 'onClose' | 'size'>) {
  return (
    <>
      <div className={styles.head}>
        <div>
          <Base.Title className={styles.title}>{title}</Base.Title>
          {description !== undefined && (
            <Base.Description className={styles.description}>{description}</Base.Description>
          )}
        </div>
        <Base.Close aria-label="Close" {...looks({ kind: 'ghost', size: 's' }, styles.close)}>
          <X aria-hidden="true" />
        </Base.Close>
      </div>
      <div className={styles.body}>{children}</div>
      {footer !== undefined && (
        <div className={styles.foot} {...bar}>
          {footer}
        </div>
      )}
    </>
  )
}

export type ConfirmProps = Omit<DialogProps, 'footer'> & {
  /** The action, as the button says it: "Delete 3 rows". */
  readonly action: string
  readonly isDangerous?: boolean
  readonly isDisabled?: boolean
  /** Does it; the dialog closes when it has been done, and shows why not. */
  readonly onConfirm: () => Promise<void>
  /** Escape, the cross, or a click beside it, where these do not just close it as *Cancel* does. */
  readonly onDismiss?: () => void
}

/** Asks before something is done, and stays with the reason where it fails. */
export function ConfirmDialog({
  action,
  isDangerous = false,
  isDisabled,
  onConfirm,
  onDismiss,
  children,
  ...dialog
}: ConfirmProps) {
  const [isBusy, setBusy] = useState(false)
  const [error, setError] = useState<unknown>()
  const confirm = async () => {
    setBusy(true)
    setError(undefined)
    try {
      await onConfirm()
      dialog.onClose()
    } catch (failure) {
      setError(failure)
    } finally {
      setBusy(false)
    }
  }
  const footer = (
    <>
      {error !== undefined && <Problem error={error} />}
      <Button onClick={dialog.onClose}>Cancel</Button>
      <Button kind={isDangerous ? 'danger' : 'primary'} isBusy={isBusy} disabled={isDisabled} onClick={confirm}>
        {action}
      </Button>
    </>
  )
  return (
    <Dialog {...dialog} onClose={onDismiss ?? dialog.onClose} footer={footer}>
      {children}
    </Dialog>
  )
}
