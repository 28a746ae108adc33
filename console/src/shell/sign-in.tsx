import { useSuspenseQuery } from '@tanstack/react-query'
import { useRouter, useSearch } from '@tanstack/react-router'
import { KeyRound, Mail } from 'lucide-react'
import { type FormEvent, type ReactNode, useEffect, useState } from 'react'
import type { SignInResult } from '../../../clients/client.ts'
import { client, queryClient } from '../app/client.ts'
import icon from '../app/icon.svg'
import { forgetEverything, infoQuery, meQuery } from '../app/session.ts'
import { Button, looks } from '../ui/button.tsx'
import { TextField } from '../ui/field.tsx'
import { Note, Problem } from '../ui/states.tsx'
import styles from './sign-in.module.css'

/** Where somebody is on the way in. */
type Step =
  | { readonly at: 'start' }
  | { readonly at: 'second factor'; readonly challenge: string }
  | { readonly at: 'code'; readonly email: string }
  | { readonly at: 'forgotten' }
  | { readonly at: 'new password'; readonly email: string }

type StepProps = {
  readonly go: (step: Step) => void
  /** Does something of a sign-in, and shows why it failed. */
  readonly attempt: (work: () => Promise<void>) => void
  readonly finish: (result: SignInResult) => Promise<void>
  readonly isBusy: boolean
}

/** Every way to sign in that the server offers: `GET /` says which. */
export function SignIn() {
  const { data: info } = useSuspenseQuery(infoQuery)
  const search = useSearch({ from: '/sign-in' })
  const router = useRouter()
  const [step, setStep] = useState<Step>({ at: 'start' })
  const [isBusy, setBusy] = useState(false)
  const [error, setError] = useState<unknown>(search.error === undefined ? undefined : new Error(search.error))
  useEffect(() => {
    document.title = 'Sign in · Console'
    forgetEverything()
  }, [])
  const go = (next: Step) => {
    setError(undefined)
    setStep(next)
  }
  const attempt = (work: () => Promise<void>) => {
    setBusy(true)
    setError(undefined)
    work()
      .catch(setError)
      .finally(() => setBusy(false))
  }
  const finish = async (result: SignInResult) => {
    if ('twoFactorRequired' in result) return go({ at: 'second factor', challenge: result.twoFactorToken })
    const me = await queryClient.fetchQuery({ ...meQuery, staleTime: 0 })
    if (me === null) throw new Error(cookieIsLost)
    router.history.replace(safeAddress(search.next))
  }
  const props = { go, attempt, finish, isBusy }
  const project = info.project.title ?? info.project.name ?? 'Daybook'
  return (
    <main className={styles.screen}>
      <div className={styles.card}>
        <div className={styles.head}>
          <img src={icon} alt="" />
          <h1>{titles[step.at](project)}</h1>
        </div>
        {error !== undefined && <Problem error={error} />}
        {step.at === 'start' && <Start {...props} next={search.next} />}
        {step.at === 'second factor' && <SecondFactor {...props} challenge={step.challenge} />}
        {step.at === 'code' && <MailedCode {...props} email={step.email} />}
        {step.at === 'forgotten' && <Forgotten {...props} />}
        {step.at === 'new password' && <NewPassword {...props} email={step.email} />}
        {window.isSecureContext || (
          <Note kind="warning">
            This page came over plain http. In production the session needs https; put a proxy with a certificate in
            front of the server.
          </Note>
        )}
      </div>
    </main>
  )
}

const titles: Readonly<Record<Step['at'], (project: string) => string>> = {
  start: (project) => `Sign in to ${project}`,
  'second factor': () => 'One more step',
  code: () => 'Look into your mail',
  forgotten: () => 'Forgot your password?',
  'new password': () => 'Choose a new password',
}

const cookieIsLost =
  'You are signed in, but the browser did not keep the session. Over plain http a server in production sets a cookie that only https may use: open this page by https.'

/** Only addresses of the console: a link from elsewhere must not lead elsewhere after signing in. */
function safeAddress(next: string | undefined): string {
  const path = next !== undefined && /^\/(?!\/|\\)/.test(next) ? next : '/data'
  return path.startsWith('/console') ? path : `/console${path}`
}

function Start({ go, attempt, finish, isBusy, next }: StepProps & { readonly next: string | undefined }) {
  const {
    data: { auth },
  } = useSuspenseQuery(infoQuery).data
  const [email, setEmail] = useState('')
  const signIn = ({ email, password }: Values) =>
    attempt(async () => finish(await client.auth.login({ email: email!, password: password! })))
  const byPasskey = () => attempt(async () => finish(await client.auth.loginByPasskey()))
  const byMail = () =>
    attempt(async () => {
      if (email === '') throw new Error('Type your e-mail address first.')
      await client.auth.sendMagicLink(email, { mode: 'code' })
      go({ at: 'code', email })
    })
  const hasOthers = auth.passkey || auth.magicLink || auth.socialProviders.length > 0
  return (
    <>
      {auth.emailPassword && (
        <Form onSubmit={signIn}>
          <TextField
            label="E-mail"
            name="email"
            type="email"
            autoComplete="username webauthn"
            required
            autoFocus
            value={email}
            onChange={({ target }) => setEmail(target.value)}
          />
          <TextField label="Password" name="password" type="password" autoComplete="current-password" required />
          <Button kind="primary" type="submit" isBusy={isBusy}>
            Sign in
          </Button>
          <button type="button" className={styles.link} onClick={() => go({ at: 'forgotten' })}>
            Forgot your password?
          </button>
        </Form>
      )}
      {hasOthers && auth.emailPassword && <div className={styles.or}>or</div>}
      <div className={styles.others}>
        {auth.passkey && (
          <Button onClick={byPasskey} disabled={isBusy}>
            <KeyRound aria-hidden="true" /> Sign in with a passkey
          </Button>
        )}
        {auth.magicLink && (
          <Button onClick={byMail} disabled={isBusy}>
            <Mail aria-hidden="true" /> Mail me a code
          </Button>
        )}
        {auth.socialProviders.map((provider) => (
          <a key={provider} {...looks()} href={socialAddress(provider, next)}>
            Sign in with {provider}
          </a>
        ))}
      </div>
    </>
  )
}

/** The provider sends the browser back here, signed in or with an error. */
function socialAddress(provider: string, next: string | undefined): string {
  const back = new URL(safeAddress(next), location.origin).href
  return `/auth/signin/${encodeURIComponent(provider)}?authMode=cookie&redirect_url=${encodeURIComponent(back)}`
}

function SecondFactor({ go, attempt, finish, isBusy, challenge }: StepProps & { readonly challenge: string }) {
  const send = ({ code }: Values) =>
    attempt(async () => finish(await client.auth.verifySecondFactor(challenge, code!.replaceAll(/\s/g, ''))))
  return (
    <Form onSubmit={send}>
      <TextField
        label="Code"
        hint="Of your authenticator app, or one of your backup codes."
        name="code"
        inputMode="numeric"
        autoComplete="one-time-code"
        required
        autoFocus
      />
      <Steps go={go} isBusy={isBusy} action="Continue" />
    </Form>
  )
}

function MailedCode({ go, attempt, finish, isBusy, email }: StepProps & { readonly email: string }) {
  const send = ({ code }: Values) =>
    attempt(async () => finish(await client.auth.loginByMagicLink(code!.trim(), email)))
  return (
    <Form onSubmit={send}>
      <p>If {email} has an account, a code is on its way there. It works for 15 minutes.</p>
      <TextField label="Code" name="code" autoComplete="one-time-code" required autoFocus />
      <Steps go={go} isBusy={isBusy} action="Sign in" />
    </Form>
  )
}

function Forgotten({ go, attempt, isBusy }: StepProps) {
  const send = ({ email }: Values) =>
    attempt(async () => {
      await client.auth.forgotPassword(email!, { mode: 'code' })
      go({ at: 'new password', email: email! })
    })
  return (
    <Form onSubmit={send}>
      <TextField label="E-mail" name="email" type="email" autoComplete="username" required autoFocus />
      <Steps go={go} isBusy={isBusy} action="Mail me a code" />
    </Form>
  )
}

function NewPassword({ go, attempt, finish, isBusy, email }: StepProps & { readonly email: string }) {
  const send = ({ code, password }: Values) =>
    attempt(async () => {
      await client.auth.resetPassword(code!.trim(), password!, email)
      await finish(await client.auth.login({ email, password: password! }))
    })
  return (
    <Form onSubmit={send}>
      <p>If {email} has an account, a code is on its way there.</p>
      <TextField label="Code" name="code" autoComplete="one-time-code" required autoFocus />
      <TextField
        label="New password"
        name="password"
        type="password"
        autoComplete="new-password"
        minLength={8}
        required
      />
      <Steps go={go} isBusy={isBusy} action="Set it and sign in" />
    </Form>
  )
}

function Steps({ go, isBusy, action }: Pick<StepProps, 'go' | 'isBusy'> & { readonly action: string }) {
  return (
    <>
      <Button kind="primary" type="submit" isBusy={isBusy}>
        {action}
      </Button>
      <button type="button" className={styles.link} onClick={() => go({ at: 'start' })}>
        Back
      </button>
    </>
  )
}

type Values = Readonly<Record<string, string>>

function Form({ onSubmit, children }: { readonly onSubmit: (values: Values) => void; readonly children: ReactNode }) {
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault()
    const values = [...new FormData(event.currentTarget)].map(([name, value]) => [name, String(value)])
    onSubmit(Object.fromEntries(values))
  }
  return (
    <form className={styles.form} onSubmit={submit}>
      {children}
    </form>
  )
}
