import { Toast } from '@base-ui/react/toast'
import { X } from 'lucide-react'
import type { ReactNode } from 'react'
import { explain } from '../app/errors.ts'
import { looks } from './button.tsx'
import styles from './overlay.module.css'

const manager = Toast.createToastManager()

/** Says what has been done, for a moment. `undo` takes it back. */
export function notify(title: string, options: { readonly text?: string; readonly undo?: () => void } = {}): void {
  manager.add({
    title,
    ...(options.text !== undefined && { description: options.text }),
    ...(options.undo !== undefined && { actionProps: { children: 'Undo', onClick: options.undo } }),
    timeout: options.undo === undefined ? 4000 : 10_000,
  })
}

/** Says what went wrong, and what to do, until it is closed. */
export function notifyError(error: unknown): void {
  const { title, advice, details } = explain(error)
  const description = [...details, advice].filter((one) => one !== undefined).join(' · ')
  manager.add({ title, description, type: 'error', priority: 'high', timeout: 0 })
}

/** Shows what is notified, over all pages. */
export function Toasts({ children }: { readonly children: ReactNode }) {
  return (
    <Toast.Provider toastManager={manager}>
      {children}
      <Toast.Portal>
        <Toast.Viewport className={styles.toasts}>
          <List />
        </Toast.Viewport>
      </Toast.Portal>
    </Toast.Provider>
  )
}

function List() {
  const { toasts } = Toast.useToastManager()
  return toasts.map((toast) => (
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
  ))
}
