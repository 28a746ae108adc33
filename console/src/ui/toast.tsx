import { Toast } from '@base-ui/react/toast'
import { X } from 'lucide-react'
import { type ReactNode, useRef } from 'react'
import { explain } from '../app/errors.ts'
import { looks } from './button.tsx'
import styles from './overlay.module.css'
import { useRoom } from './use-room.ts'

const manager = Toast.createToastManager()

type NotifyOptions = {
  readonly text?: string
  /** Takes it back; false where that may be tried again. */
  readonly undo?: () => Promise<boolean>
}

/** Says what has been done, for a moment. */
export function notify(title: string, { text, undo }: NotifyOptions = {}): void {
  let isUndoing = false
  const act = async () => {
    if (isUndoing || undo === undefined) return
    isUndoing = true
    isUndoing = await undo()
    if (isUndoing) manager.close(id)
  }
  const id = manager.add({
    title,
    ...(text !== undefined && { description: text }),
    ...(undo !== undefined && { actionProps: { children: 'Undo', onClick: () => void act() } }),
    timeout: undo === undefined ? 4000 : 10_000,
  })
}

/** Says what went wrong, and what to do, until it is closed. */
export function notifyError(error: unknown): void {
  const { title, advice, details } = explain(error)
  notifyProblem(title, [...details, advice].filter((one) => one !== undefined).join(' · '))
}

/** The same where the words are there already. */
export function notifyProblem(title: string, description: string): void {
  manager.add({ title, description, type: 'error', priority: 'high', timeout: 0 })
}

/** Says what has been done and what has come with it that may not be meant, until it is closed. */
export function notifyWarning(title: string, description: string): void {
  manager.add({ title, description, type: 'warning', priority: 'high', timeout: 0 })
}

/** Shows what is notified, over all pages. */
export function Toasts({ children }: { readonly children: ReactNode }) {
  return (
    <Toast.Provider toastManager={manager}>
      {children}
      <Toast.Portal>
        <Viewport />
      </Toast.Portal>
    </Toast.Provider>
  )
}

function Viewport() {
  const { toasts } = Toast.useToastManager()
  const viewport = useRef<HTMLDivElement>(null)
  useRoom(viewport, toasts.length > 0)
  return (
    <Toast.Viewport ref={viewport} className={styles.toasts}>
      {toasts.map((toast) => (
        <Toast.Root key={toast.id} toast={toast} className={styles.toast}>
          <Toast.Content className={styles.toastContent}>
            <Toast.Title className={styles.toastTitle} />
            <Toast.Description className={styles.toastText} />
            <Toast.Action {...looks({ size: 's' }, styles.toastAction)} />
            <Toast.Close className={styles.toastClose} aria-label="Close">
              <X size={14} aria-hidden="true" />
            </Toast.Close>
          </Toast.Content>
        </Toast.Root>
      ))}
    </Toast.Viewport>
  )
}
