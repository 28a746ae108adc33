import { useBlocker } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { ConfirmDialog } from './dialog.tsx'

/**
 * Asks before what is not saved is lost: by another page of the console, whose question is the answer of this hook, and by closing
 * the tab, where the browser asks. Another state of the same page loses nothing, unless `parts` names the members of the address
 * that show something else in place of the form.
 */
export function useLeaveQuestion(isNeeded: boolean, question: ReactNode, parts: readonly string[] = []): ReactNode {
  const leaving = useBlocker({
    shouldBlockFn: ({ current, next }) => isNeeded && leaves(current, next, parts),
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

type Address = { readonly pathname: string; readonly search: object }

/** Whether the way from one address to another takes a form off the page. */
function leaves(current: Address, next: Address, parts: readonly string[]): boolean {
  const member = (search: object, name: string) => (search as Readonly<Record<string, unknown>>)[name]
  return (
    current.pathname !== next.pathname ||
    parts.some((name) => member(current.search, name) !== member(next.search, name))
  )
}
