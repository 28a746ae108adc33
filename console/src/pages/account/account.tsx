import { useQuery, useSuspenseQuery } from '@tanstack/react-query'
import { type FormEvent, type ReactNode, useState } from 'react'
import { client, queryClient } from '../../app/client.ts'
import { infoQuery, meQuery, useMe } from '../../app/session.ts'
import { Page } from '../../shell/page.tsx'
import { Button } from '../../ui/button.tsx'
import { TextField } from '../../ui/field.tsx'
import { useLeaveQuestion } from '../../ui/leaving.tsx'
import { Loading, Note, Problem } from '../../ui/states.tsx'
import { notify } from '../../ui/toast.tsx'
import { patchRow } from '../data/writes.ts'
import styles from '../people/people.module.css'
import { Card } from '../people/people-page.tsx'
import { Sessions } from '../people/sessions.tsx'
import { Keys } from './keys.tsx'
import { Passkeys } from './passkeys.tsx'
import { SecondFactor } from './second-factor.tsx'

/** The user's own page: their name, and everything that opens their account. */
export function Account() {
  const me = useMe()
  const { auth } = useSuspenseQuery(infoQuery).data.data
  return (
    <Page title="Your account" description={[me.email, me.role?.name].filter(Boolean).join(' · ')}>
      <div className={styles.columns}>
        <Profile />
        {auth.emailPassword && <Password />}
        {auth.emailPassword && <Address />}
        {auth.twoFactor && <SecondFactor />}
        {auth.passkey && <Passkeys />}
        <Sessions />
        <Keys />
        {auth.socialProviders.length > 0 && <Providers names={auth.socialProviders} />}
      </div>
    </Page>
  )
}

type Own = { readonly firstName?: string; readonly lastName?: string | null; readonly phone?: string | null }

function Profile() {
  const me = useMe()
  const { data, error } = useQuery({
    queryKey: ['people', 'profile', me.id],
    queryFn: async () =>
      (
        await client.request<{ data: Own }>(`/items/svc_User/${me.id}`, {
          query: { fields: 'firstName,lastName,phone' },
        })
      ).data,
  })
  return (
    <Card title="Profile">
      {error !== null && <Note>Your role does not let you see or change your profile. An administrator can.</Note>}
      {error === null && data === undefined && <Loading lines={3} />}
      {data !== undefined && <ProfileForm key={JSON.stringify(data)} id={me.id} stored={data} />}
    </Card>
  )
}

function ProfileForm({ id, stored }: { readonly id: string; readonly stored: Own }) {
  const save = async (values: Values) => {
    const given = Object.entries(values).map(([name, value]) => [name, value.trim() === '' ? null : value.trim()])
    const change = Object.fromEntries(given.filter(([name, value]) => value !== (stored[name as keyof Own] ?? null)))
    if (Object.keys(change).length === 0) return
    await patchRow('svc_User', id, change, undefined)
    await queryClient.invalidateQueries({ queryKey: ['people'] })
    await queryClient.invalidateQueries({ queryKey: meQuery.queryKey })
  }
  return (
    <Form action="Save" onSave={save}>
      <TextField
        label="First name"
        name="firstName"
        required
        autoComplete="given-name"
        defaultValue={stored.firstName}
      />
      <TextField label="Last name" name="lastName" autoComplete="family-name" defaultValue={stored.lastName ?? ''} />
      <TextField label="Phone" name="phone" type="tel" autoComplete="tel" defaultValue={stored.phone ?? ''} />
    </Form>
  )
}

function Password() {
  const save = async ({ current, next }: Values) => {
    await client.auth.changePassword(current!, next!)
    await queryClient.invalidateQueries({ queryKey: ['people', 'sessions'] })
    notify('Your password is changed', { text: 'Your other sessions have ended.' })
  }
  return (
    <Card title="Password">
      <Form action="Change it" onSave={save} isEmptied>
        <TextField label="Password now" name="current" type="password" required autoComplete="current-password" />
        <TextField
          label="New password"
          name="next"
          type="password"
          required
          minLength={8}
          autoComplete="new-password"
          hint="Your other sessions end with it."
        />
      </Form>
    </Card>
  )
}

function Address() {
  const me = useMe()
  const save = async ({ email, currentPassword }: Values) => {
    await client.request('/auth/email/change', { method: 'POST', body: { email, currentPassword } })
    notify('A mail is on its way', { text: `Follow its link, and your address is ${email}.` })
  }
  return (
    <Card title="E-mail address">
      <Form action="Ask for it" onSave={save} isEmptied>
        <TextField label="New address" note={me.email} name="email" type="email" required autoComplete="email" />
        <TextField
          label="Password now"
          name="currentPassword"
          type="password"
          required
          autoComplete="current-password"
          hint="The new address counts when the link in the mail to it has been followed."
        />
      </Form>
    </Card>
  )
}

function Providers({ names }: { readonly names: readonly string[] }) {
  return (
    <Card title="Sign-in with others">
      <p>
        {names.join(', ')}: choose one on the sign-in page. Its account is linked to yours when it has the same,
        verified e-mail address.
      </p>
    </Card>
  )
}

type Values = Readonly<Record<string, string>>

type FormProps = {
  readonly action: string
  readonly onSave: (values: Values) => Promise<void>
  /** The typed text goes when it has been saved. */
  readonly isEmptied?: boolean
  readonly children: ReactNode
}

/** A small form that stays with the reason where it fails, and asks before what was typed into it is lost. */
function Form({ action, onSave, isEmptied = false, children }: FormProps) {
  const [isTyped, setTyped] = useState(false)
  const leaveQuestion = useLeaveQuestion(isTyped, 'The page has changes that are not saved. They are lost.')
  const [isBusy, setBusy] = useState(false)
  const [error, setError] = useState<unknown>()
  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault()
    const form = event.currentTarget
    setBusy(true)
    setError(undefined)
    try {
      await onSave(Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, String(value)])))
      if (isEmptied) form.reset()
      setTyped(false)
    } catch (failure) {
      setError(failure)
    } finally {
      setBusy(false)
    }
  }
  return (
    <form
      className={styles.form}
      onSubmit={(event) => void submit(event)}
      onInput={({ currentTarget }) => setTyped([...currentTarget.elements].some(isTypedInto))}
    >
      {leaveQuestion}
      {children}
      {error !== undefined && <Problem error={error} />}
      <div className={styles.end}>
        <Button type="submit" kind="primary" isBusy={isBusy}>
          {action}
        </Button>
      </div>
    </form>
  )
}

/** What a browser fills in by itself is not lost. */
const isTypedInto = (control: Element): boolean =>
  control instanceof HTMLInputElement && control.value !== control.defaultValue && !control.matches(':autofill')
