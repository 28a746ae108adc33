import { useBlocker } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import { Button } from './button.tsx'
import { ConfirmDialog, type ConfirmProps, Dialog, Drawer, type DrawerProps } from './dialog.tsx'

/**
 * Asks before what is not saved is lost: by another page of the console, whose question is the answer of this hook, and by closing
 * the tab, where the browser asks. Another state of the same page loses nothing, unless `parts` names the members of the address
 * that show something else in place of the form, or all of them do.
 */
export function useLeaveQuestion(
  isNeeded: boolean,
  question: ReactNode,
  parts: readonly string[] | 'all' = [],
): ReactNode {
  const leaving = useBlocker({
    shouldBlockFn: ({ current, next }) => isNeeded && leaves(current, next, parts),
    enableBeforeUnload: () => isNeeded,
    withResolver: true,
  })
  if (leaving.status !== 'blocked') return null
  return (
    <LeaveDialog onStay={leaving.reset} onLeave={leaving.proceed}>
      {question}
    </LeaveDialog>
  )
}

type FormDrawerProps = Omit<DrawerProps, 'isOpen'> & {
  /** Something was entered that closing would lose. */
  readonly isChanged: boolean
}

/**
 * An open drawer with a form. It asks before what was entered in it is lost, by its close as by the ways off the page: whoever
 * closes it by another state of the page, after that or because it is saved, does so with `ignoreBlocker`.
 */
export function FormDrawer({ isChanged, onClose, children, ...drawer }: FormDrawerProps) {
  const { close, questions } = useAskedClose(isChanged, onClose)
  return (
    <Drawer isOpen onClose={close} {...drawer}>
      {children}
      {questions}
    </Drawer>
  )
}

/** An open dialog with a form. It asks before what was entered in it is lost, unless *Cancel* is pressed. */
export function FormDialog({ onClose, onConfirm, children, ...dialog }: Omit<ConfirmProps, 'isOpen' | 'onDismiss'>) {
  const [isChanged, setChanged] = useState(false)
  const [isConfirming, setConfirming] = useState(false)
  const { close, questions } = useAskedClose(isChanged && !isConfirming, onClose)
  const confirm = async () => {
    setConfirming(true)
    try {
      await onConfirm()
    } catch (failure) {
      // Only then is there something to lose: what was saved may close it by another state of the page.
      setConfirming(false)
      throw failure
    }
  }
  return (
    <ConfirmDialog isOpen onClose={onClose} onDismiss={close} onConfirm={confirm} {...dialog}>
      <div style={{ display: 'contents' }} onChange={() => setChanged(true)}>
        {children}
      </div>
      {questions}
    </ConfirmDialog>
  )
}

type SecretDialogProps = { readonly title: string; readonly onClose: () => void; readonly children: ReactNode }

/** An open dialog with a secret that is shown only once. It asks before it closes, unless its user says that they have kept it. */
export function SecretDialog({ title, onClose, children }: SecretDialogProps) {
  const [isAsking, setAsking] = useState(false)
  const footer = (
    <Button kind="primary" onClick={onClose}>
      I have kept it
    </Button>
  )
  return (
    <Dialog isOpen onClose={() => setAsking(true)} title={title} footer={footer}>
      {children}
      {isAsking && (
        <ConfirmDialog
          isOpen
          onClose={() => setAsking(false)}
          title="Close without keeping it?"
          action="Close it"
          isDangerous
          onConfirm={async () => onClose()}
        >
          <p>It cannot be shown again.</p>
        </ConfirmDialog>
      )}
    </Dialog>
  )
}

/** The close of a form over the page, which asks first where that is needed, and the questions to show in it. */
function useAskedClose(isNeeded: boolean, onClose: () => void) {
  const [isAsking, setAsking] = useState(false)
  const leaveQuestion = useLeaveQuestion(isNeeded, entered, 'all')
  const questions = (
    <>
      {leaveQuestion}
      {isAsking && (
        <LeaveDialog onStay={() => setAsking(false)} onLeave={onClose}>
          {entered}
        </LeaveDialog>
      )}
    </>
  )
  return { close: () => (isNeeded ? setAsking(true) : onClose()), questions }
}

const entered = 'What was entered here is not saved. It is lost.'

type LeaveDialogProps = { readonly onStay: () => void; readonly onLeave: () => void; readonly children: ReactNode }

function LeaveDialog({ onStay, onLeave, children }: LeaveDialogProps) {
  return (
    <ConfirmDialog
      isOpen
      onClose={onStay}
      title="Leave without saving?"
      action="Leave"
      isDangerous
      onConfirm={async () => onLeave()}
    >
      <p>{children}</p>
    </ConfirmDialog>
  )
}

type Address = { readonly pathname: string; readonly search: object }

/** Whether the way from one address to another takes a form off the page. */
function leaves(current: Address, next: Address, parts: readonly string[] | 'all'): boolean {
  const member = (search: object, name: string) => (search as Readonly<Record<string, unknown>>)[name]
  const names = parts === 'all' ? [...Object.keys(current.search), ...Object.keys(next.search)] : parts
  return (
    current.pathname !== next.pathname ||
    names.some((name) => JSON.stringify(member(current.search, name)) !== JSON.stringify(member(next.search, name)))
  )
}
