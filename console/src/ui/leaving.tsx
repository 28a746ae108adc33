import { useBlocker } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import { Button, looks } from './button.tsx'
import { ConfirmDialog, type ConfirmProps, Dialog, Drawer, type DrawerProps } from './dialog.tsx'

type Parts = readonly string[] | 'all' | 'sign-in'

const signIn = '/sign-in'

/**
 * Asks before what is not saved is lost: by sign-in where the session has ended, by another page of the console, whose question is
 * the answer of this hook, and by closing the tab, where the browser asks. Another state of the same page loses nothing, unless
 * `parts` names the members of the address that show something else in place of the form, or all of them do. Where it is
 * `sign-in`, only that is asked about.
 */
export function useLeaveQuestion(isNeeded: boolean, question: ReactNode, parts: Parts = []): ReactNode {
  const leaving = useBlocker({
    shouldBlockFn: ({ current, next }) => isNeeded && leaves(current, next, parts),
    enableBeforeUnload: () => isNeeded,
    withResolver: true,
  })
  if (leaving.status !== 'blocked') return null
  if (leaving.next.pathname === signIn) return <EndDialog onStay={leaving.reset} onLeave={leaving.proceed} />
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

type FormDialogProps = Omit<ConfirmProps, 'isOpen' | 'onDismiss'> & {
  /** It holds what was entered before, and nothing else does. */
  readonly isEntered?: boolean
}

/** An open dialog with a form. It asks before what was entered in it is lost, unless *Cancel* is pressed. */
export function FormDialog({ onClose, onConfirm, isEntered = false, children, ...dialog }: FormDialogProps) {
  const [isChanged, setChanged] = useState(isEntered)
  const [isConfirming, setConfirming] = useState(false)
  const { close, questions } = useAskedClose(isChanged, onClose, isConfirming)
  const confirm = async () => {
    setConfirming(true)
    try {
      await onConfirm()
    } catch (failure) {
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

type SecretDialogProps = {
  readonly title: string
  /** How the secret is spoken of. */
  readonly what?: 'it' | 'them'
  readonly onClose: () => void
  readonly children: ReactNode
}

/** An open dialog with a secret that is shown only once. It asks before it closes, unless its user says that they have kept it. */
export function SecretDialog({ title, what = 'it', onClose, children }: SecretDialogProps) {
  const [isAsking, setAsking] = useState(false)
  const footer = (
    <Button kind="primary" onClick={onClose}>
      I have kept {what}
    </Button>
  )
  return (
    <Dialog isOpen onClose={() => setAsking(true)} title={title} footer={footer}>
      {children}
      {isAsking && (
        <ConfirmDialog
          isOpen
          onClose={() => setAsking(false)}
          title={`Close without keeping ${what}?`}
          action="Close it"
          isDangerous
          onConfirm={async () => onClose()}
        >
          <p>{what === 'it' ? 'It' : 'They'} cannot be shown again.</p>
        </ConfirmDialog>
      )}
    </Dialog>
  )
}

/** The close of a form over the page, which asks first where that is needed, and the questions to show in it. */
function useAskedClose(isChanged: boolean, onClose: () => void, isConfirming = false) {
  const [isAsking, setAsking] = useState(false)
  // What was saved may close it by another state of the page. What was refused at the end of the session was not saved.
  const leaveQuestion = useLeaveQuestion(isChanged, entered, isConfirming ? 'sign-in' : 'all')
  const isNeeded = isChanged && !isConfirming
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

/** What is not saved need not be lost with the session: it belongs to the whole browser. */
function EndDialog({ onStay, onLeave }: Omit<LeaveDialogProps, 'children'>) {
  return (
    <ConfirmDialog
      isOpen
      onClose={onStay}
      title="Your session has ended"
      action="Sign in here"
      isDangerous
      onConfirm={async () => onLeave()}
    >
      <p>
        What you have typed stays here: sign in again in another tab, then save it. If you sign in here, it is lost.
      </p>
      <a href="/console/sign-in" target="_blank" rel="noreferrer" {...looks()}>
        Sign in again in another tab
      </a>
    </ConfirmDialog>
  )
}

type Address = { readonly pathname: string; readonly search: object }

/** Whether the way from one address to another takes a form off the page. */
function leaves(current: Address, next: Address, parts: Parts): boolean {
  if (parts === 'sign-in') return next.pathname === signIn
  const member = (search: object, name: string) => (search as Readonly<Record<string, unknown>>)[name]
  const names = parts === 'all' ? [...Object.keys(current.search), ...Object.keys(next.search)] : parts
  return (
    current.pathname !== next.pathname ||
    names.some((name) => JSON.stringify(member(current.search, name)) !== JSON.stringify(member(next.search, name)))
  )
}
