import { useBlocker } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { ConfirmDialog } from './dialog.tsx'

/**
 * Asks before what is not saved is lost: by another page of the console, whose question is the answer of this hook, and by closing
 * the tab, where the browser asks. Another state of the same page loses nothing.
 */
export function useLeaveQuestion(isNeeded: boolean, question: ReactNode): ReactNode {
  const leaving = useBlocker({
    shouldBlockFn: ({ current, next }) => isNeeded && current.pathname !== next.pathname,
    enableBeforeUnload: () => isNeeded,
    withResolver: true,
  })
  if (leaving.status !== 'blocked') return null
  return (
    <ConfirmDialog
      isOpen
      onClose={leaving.reset}
      title="Leave without saving?"
      action="Leave"
      isDangerous
      onConfirm={async () => leaving.proceed()}
    >
      <p>{question}</p>
    </ConfirmDialog>
  )
}
