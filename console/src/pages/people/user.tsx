import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams } from '@tanstack/react-router'
import { type FormEvent, useState } from 'react'
import { client } from '../../app/client.ts'
import { useMe } from '../../app/session.ts'
import { Page } from '../../shell/page.tsx'
import { Button, looks } from '../../ui/button.tsx'
import { ConfirmDialog } from '../../ui/dialog.tsx'
import { Field, Select, TextField } from '../../ui/field.tsx'
import { FormDialog, useLeaveQuestion } from '../../ui/leaving.tsx'
import { Loading, Note, Problem } from '../../ui/states.tsx'
import { notify } from '../../ui/toast.tsx'
import { timeText } from '../data/values.ts'
import { deleteRows, patchRow } from '../data/writes.ts'
import { Memberships } from './memberships.tsx'
import styles from './people.module.css'
import { credentialsQuery, nameOf, refreshPeople, statuses, type User, userQuery } from './people.ts'
import { Card, PeopleLink } from './people-page.tsx'
import { Sessions } from './sessions.tsx'
import { Status } from './users.tsx'

/** Everything about one account: who it is, what it may do, and what opens it. */
export function UserPage() {
  const { id } = useParams({ from: '/shell/people/$id' })
  const { data: user, error, refetch } = useQuery(userQuery(id))
  const title = user === undefined ? 'User' : nameOf(user)
  return (
    <Page
      title={title}
      crumbs={<PeopleLink />}
      description={user?.email ?? undefined}
      actions={user !== undefined && <Actions user={user} />}
    >
      {error !== null && <Problem error={error} onRetry={() => void refetch()} />}
      {error === null && user === undefined && <Loading label="The user is loading" />}
      {user !== undefined && <Parts key={user.id} user={user} />}
    </Page>
  )
}

function Parts({ user }: { readonly user: User }) {
  const me = useMe()
  return (
    <div className={styles.columns}>
      <Profile key={`${user.firstName} ${user.lastName} ${user.email} ${user.phone}`} user={user} />
      <Memberships user={user} />
      {me.isAdmin && <Sessions userId={user.id} />}
      {me.isAdmin && <Credentials userId={user.id} />}
    </div>
  )
}

type Ask = 'block' | 'unblock' | 'password' | 'delete'

function Actions({ user }: { readonly user: User }) {
  const me = useMe()
  const [asked, setAsked] = useState<Ask>()
  const close = () => setAsked(undefined)
  if (user.id === me.id)
    return (
      <Link to="/account" {...looks()}>
        Your account
      </Link>
    )
  const isOpen = user.status === 'active'
  return (
    <>
      <Link to="/data/$collection/$id" params={{ collection: 'svc_User', id: user.id }} {...looks()}>
        Timeline
      </Link>
      {me.isAdmin && <Button onClick={() => setAsked('password')}>Set a password…</Button>}
      <Button onClick={() => setAsked(isOpen ? 'block' : 'unblock')}>{isOpen ? 'Block…' : 'Unblock…'}</Button>
      <Button kind="danger" onClick={() => setAsked('delete')}>
        Delete…
      </Button>
      {(asked === 'block' || asked === 'unblock') && (
        <Block user={user} isBlocking={asked === 'block'} onClose={close} />
      )}
      {asked === 'password' && <NewPassword user={user} onClose={close} />}
      {asked === 'delete' && <Delete user={user} onClose={close} />}
    </>
  )
}

type AskProps = { readonly user: User; readonly onClose: () => void }

function Block({ user, isBlocking, onClose }: AskProps & { readonly isBlocking: boolean }) {
  return (
    <ConfirmDialog
      isOpen
      onClose={onClose}
      title={isBlocking ? `Block ${nameOf(user)}` : `Let ${nameOf(user)} in again`}
      action={isBlocking ? 'Block' : 'Unblock'}
      isDangerous={isBlocking}
      onConfirm={async () => {
        await patchRow('svc_User', user.id, { status: isBlocking ? 'suspended' : 'active' }, undefined)
        await refreshPeople()
      }}
    >
      <p>
        {isBlocking
          ? 'They cannot sign in any more. Their sessions, API keys and mailed links end for good; what they made stays.'
          : 'They can sign in again. Sessions, keys and links that were ended stay ended.'}
      </p>
    </ConfirmDialog>
  )
}

function NewPassword({ user, onClose }: AskProps) {
  const [password, setPassword] = useState('')
  return (
    <FormDialog
      onClose={onClose}
      title={`A new password for ${nameOf(user)}`}
      description="Their sessions and mailed links end with it."
      action="Set it"
      isDisabled={password === ''}
      onConfirm={async () => {
        await client.request('/auth/admin/password/change', {
          method: 'POST',
          body: { userId: user.id, newPassword: password },
        })
        await refreshPeople()
        notify('The password is set')
      }}
    >
      <TextField
        label="New password"
        type="password"
        autoComplete="new-password"
        hint="At least 8 characters."
        value={password}
        onChange={({ target }) => setPassword(target.value)}
      />
    </FormDialog>
  )
}

function Delete({ user, onClose }: AskProps) {
  const navigate = useNavigate()
  return (
    <ConfirmDialog
      isOpen
      onClose={onClose}
      title={`Delete ${nameOf(user)}`}
      action="Delete"
      isDangerous
      onConfirm={async () => {
        await deleteRows('svc_User', [user.id])
        await navigate({ to: '/people', ignoreBlocker: true })
        await refreshPeople()
      }}
    >
      <p>Their roles, sessions, keys and passkeys go too. To keep the account and shut it, block it instead.</p>
    </ConfirmDialog>
  )
}

/** Whom it belongs to, as one form: only what was changed is sent. */
function Profile({ user }: { readonly user: User }) {
  const me = useMe()
  const stored = {
    firstName: user.firstName,
    lastName: user.lastName ?? '',
    email: user.email ?? '',
    phone: user.phone ?? '',
  }
  const [values, setValues] = useState(stored)
  const [status, setStatus] = useState(user.status ?? '')
  const [error, setError] = useState<unknown>()
  const names = (['firstName', 'lastName', 'email', 'phone'] as const).filter((name) => values[name] !== stored[name])
  const change = {
    ...Object.fromEntries(names.map((name) => [name, values[name].trim() === '' ? null : values[name].trim()])),
    ...(status !== (user.status ?? '') && { status }),
  }
  const leaveQuestion = useLeaveQuestion(
    Object.keys(change).length > 0,
    'The profile has changes that are not saved. They are lost.',
  )
  const save = async (event: FormEvent) => {
    event.preventDefault()
    setError(undefined)
    try {
      await patchRow('svc_User', user.id, change, undefined)
      await refreshPeople()
    } catch (failure) {
      setError(failure)
    }
  }
  const field = (name: keyof typeof values) => ({
    value: values[name],
    autoComplete: 'off',
    onChange: ({ target }: { readonly target: { readonly value: string } }) =>
      setValues((before) => ({ ...before, [name]: target.value })),
  })
  const isOwn = user.id === me.id
  return (
    <Card title="Profile" actions={<Status status={user.status} />}>
      {leaveQuestion}
      <form className={styles.form} onSubmit={(event) => void save(event)}>
        <TextField label="First name" required {...field('firstName')} />
        <TextField label="Last name" {...field('lastName')} />
        <TextField
          label="E-mail"
          type="email"
          hint={user.emailVerified === true ? 'Verified.' : 'Not verified.'}
          disabled={isOwn}
          {...field('email')}
        />
        <TextField label="Phone" type="tel" {...field('phone')} />
        {user.status !== undefined && !isOwn && (
          <Field label="State" hint="Any state other than active ends sessions, keys and mailed links for good.">
            {(attributes) => (
              <Select
                {...attributes}
                value={status}
                onChange={({ target }) => setStatus(target.value)}
                options={statuses}
              />
            )}
          </Field>
        )}
        {error !== undefined && <Problem error={error} />}
        <div className={styles.end}>
          <Button kind="primary" type="submit" disabled={Object.keys(change).length === 0}>
            Save
          </Button>
        </div>
      </form>
      {user.createdAt !== undefined && (
        <p className={styles.quiet}>
          Made {timeText(user.createdAt)}
          {user.lastAccess ? `, last here ${timeText(user.lastAccess)}` : ', never here'}.
        </p>
      )}
    </Card>
  )
}

type Key = { readonly id: string; readonly name: string; readonly hint: string; readonly expiresAt: string | null }
type Passkey = { readonly id: string; readonly name: string; readonly createdAt: string }
type Link_ = { readonly id: string; readonly providerId: string; readonly createdAt: string }
type Factor = { readonly id: string; readonly enabled: boolean; readonly createdAt: string }

/** The credentials of an account besides its password; none of them shows its secret. */
function Credentials({ userId }: { readonly userId: string }) {
  const keys = useQuery(credentialsQuery<Key>('svc_ApiKey', userId, ['id', 'name', 'hint', 'expiresAt', 'createdAt']))
  const passkeys = useQuery(credentialsQuery<Passkey>('svc_Passkey', userId, ['id', 'name', 'createdAt']))
  const links = useQuery(credentialsQuery<Link_>('svc_Account', userId, ['id', 'providerId', 'createdAt']))
  const factors = useQuery(credentialsQuery<Factor>('svc_TwoFactor', userId, ['id', 'enabled', 'createdAt']))
  const all = [keys, passkeys, links, factors]
  const failed = all.find(({ error }) => error !== null)
  const isWhole = all.every(({ data }) => data !== undefined)
  const rows = [
    ...(factors.data ?? [])
      .filter(({ enabled }) => enabled)
      .map(({ id, createdAt }) => ({ id, title: 'Second factor', note: `since ${timeText(createdAt)}` })),
    ...(passkeys.data ?? []).map(({ id, name, createdAt }) => ({
      ...{ id, title: `Passkey ${name}`, note: `since ${timeText(createdAt)}` },
    })),
    ...(keys.data ?? []).map(({ id, name, hint, expiresAt }) => ({
      ...{
        id,
        title: `API key ${name}`,
        note: `${hint} · ${expiresAt === null ? 'no end' : `until ${timeText(expiresAt)}`}`,
      },
    })),
    ...(links.data ?? []).map(({ id, providerId, createdAt }) => ({
      ...{ id, title: `Sign-in with ${providerId}`, note: `since ${timeText(createdAt)}` },
    })),
  ]
  return (
    <Card title="What opens the account">
      {failed !== undefined && <Problem error={failed.error} onRetry={() => void failed.refetch()} />}
      {failed === undefined && !isWhole && <Loading lines={3} />}
      {isWhole && rows.length === 0 && <p>Only the password: no second factor, passkey, API key or provider.</p>}
      <ul className={styles.list}>
        {rows.map(({ id, title, note }) => (
          <li key={id} className={styles.item}>
            <span>
              {title}
              <small>{note}</small>
            </span>
          </li>
        ))}
      </ul>
      {rows.length > 0 && <Note>Only their owner ends these one by one. Blocking the account ends all keys.</Note>}
    </Card>
  )
}
