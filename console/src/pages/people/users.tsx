import { useQuery, useSuspenseQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { Plus, UsersRound } from 'lucide-react'
import { type FormEvent, useEffect, useRef, useState } from 'react'
import { infoQuery, useMe } from '../../app/session.ts'
import { Button, looks } from '../../ui/button.tsx'
import { Checkbox, Field, Input, Select, TextField } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/leaving.tsx'
import { Empty, Loading, Problem } from '../../ui/states.tsx'
import { Badge, Table } from '../../ui/table.tsx'
import { timeText } from '../data/values.ts'
import { createRow } from '../data/writes.ts'
import styles from './people.module.css'
import {
  type Membership,
  nameOf,
  refreshPeople,
  rolesQuery,
  statuses,
  tenantsQuery,
  type User,
  usersPerPage,
  usersQuery,
} from './people.ts'
import { PeoplePage } from './people-page.tsx'
import type { UsersSearch } from './routes.ts'

/** Everybody who has an account, narrowed by words, state, role and tenant. */
export function Users() {
  const search = useSearch({ from: '/shell/people' })
  const { data, error, refetch } = useQuery(usersQuery(search))
  const [isAdding, setAdding] = useState(false)
  return (
    <PeoplePage
      title="People"
      description="Who has an account, what they may do, and where they are signed in."
      actions={
        <Button kind="primary" onClick={() => setAdding(true)}>
          <Plus aria-hidden="true" /> New user
        </Button>
      }
    >
      <Narrow search={search} />
      {error !== null && <Problem error={error} onRetry={() => void refetch()} />}
      {error === null && data === undefined && <Loading label="Users are loading" />}
      {data?.data.length === 0 && (
        <Empty icon={<UsersRound />} title="Nobody is found">
          <p>No account fits what is asked for above.</p>
        </Empty>
      )}
      {data !== undefined && data.data.length > 0 && (
        <>
          <List users={data.data} />
          <Pager search={search} count={data.totalCount} />
        </>
      )}
      {isAdding && <NewUser onClose={() => setAdding(false)} />}
    </PeoplePage>
  )
}

/** Chooses among what the reader may read: whoever may not see roles or tenants has no such choice. */
function Narrow({ search }: { readonly search: UsersSearch }) {
  const { data: info } = useSuspenseQuery(infoQuery)
  const navigate = useNavigate({ from: '/people' })
  const { data: roles = [] } = useQuery(rolesQuery)
  const { data: tenants = [] } = useQuery({ ...tenantsQuery, enabled: info.project.multitenant })
  const input = useRef<HTMLInputElement>(null)
  useEffect(() => {
    // The address may have been changed by a link.
    if (input.current !== null) input.current.value = search.q ?? ''
  }, [search.q])
  const find = (event: FormEvent) => {
    event.preventDefault()
    const q = input.current?.value.trim() || undefined
    void navigate({ search: (before) => ({ ...before, q, page: undefined }) })
  }
  const choose = (name: 'status' | 'role' | 'tenant') => (value: string) =>
    navigate({ search: (before) => ({ ...before, [name]: value || undefined, page: undefined }) })
  const choices = [
    {
      label: 'State',
      value: search.status,
      onChoose: choose('status'),
      options: statuses.map((one) => ({ id: one, name: one })),
    },
    { label: 'Role', value: search.role, onChoose: choose('role'), options: roles },
    { label: 'Tenant', value: search.tenant, onChoose: choose('tenant'), options: tenants },
  ].filter(({ options }) => options.length > 0)
  return (
    <form className={styles.tools} onSubmit={find}>
      <Input ref={input} type="search" data-filter aria-label="Find people" placeholder="Name or e-mail, then Enter" />
      {choices.map(({ label, value, onChoose, options }) => (
        <Select
          key={label}
          aria-label={label}
          value={value ?? ''}
          onChange={({ target }) => void onChoose(target.value)}
          options={[
            { value: '', label: `Any ${label.toLowerCase()}` },
            ...options.map(({ id, name }) => ({ value: id, label: name })),
          ]}
        />
      ))}
    </form>
  )
}

function List({ users }: { readonly users: readonly User[] }) {
  return (
    <Table
      label="Users"
      rows={users}
      keyOf={({ id }) => id}
      columns={[
        {
          title: 'Name',
          cell: (user) => (
            <Link to="/people/$id" params={{ id: user.id }}>
              {nameOf(user)}
            </Link>
          ),
        },
        { title: 'E-mail', cell: ({ email }) => email ?? '–' },
        { title: 'Roles', cell: ({ userRoles = [] }) => <RoleNames memberships={userRoles} /> },
        { title: 'State', cell: ({ status }) => <Status status={status} /> },
        { title: 'Last here', cell: ({ lastAccess }) => (lastAccess ? timeText(lastAccess) : 'never') },
      ]}
    />
  )
}

function RoleNames({ memberships }: { readonly memberships: readonly Membership[] }) {
  return (
    <span className={styles.names}>
      {memberships.map(({ id, role, tenant }) => (
        <Badge key={id} tone={role?.name === 'administrator' ? 'warn' : 'plain'}>
          {role?.name ?? 'a role'}
          {tenant ? ` at ${tenant.name}` : ''}
        </Badge>
      ))}
    </span>
  )
}

export function Status({ status }: { readonly status: string | undefined }) {
  if (status === undefined) return '–'
  return <Badge tone={status === 'active' ? 'good' : status === 'pending' ? 'info' : 'bad'}>{status}</Badge>
}

function Pager({ search, count }: { readonly search: UsersSearch; readonly count: number }) {
  const page = search.page ?? 1
  const pages = Math.max(1, Math.ceil(count / usersPerPage))
  const to = (next: number): UsersSearch => ({ ...search, page: next === 1 ? undefined : next })
  return (
    <div className={styles.pager}>
      <span role="status">{count === 1 ? '1 user' : `${count.toLocaleString()} users`}</span>
      {page > 1 && (
        <Link to="/people" search={to(page - 1)} {...looks({ size: 's' })}>
          Before
        </Link>
      )}
      {pages > 1 && `page ${page} of ${pages}`}
      {page < pages && (
        <Link to="/people" search={to(page + 1)} {...looks({ size: 's' })}>
          Next
        </Link>
      )}
    </div>
  )
}

type NewUserValues = {
  firstName: string
  lastName: string
  email: string
  password: string
  role_Id: string
  tenant_Id: string
}

const nobody: NewUserValues = { firstName: '', lastName: '', email: '', password: '', role_Id: '', tenant_Id: '' }

/** An account that is made for somebody, with its role. */
function NewUser({ onClose }: { readonly onClose: () => void }) {
  const { data: info } = useSuspenseQuery(infoQuery)
  const me = useMe()
  const navigate = useNavigate()
  const { data: roles = [] } = useQuery(rolesQuery)
  const { data: tenants = [] } = useQuery({ ...tenantsQuery, enabled: info.project.multitenant && me.isAdmin })
  const [values, setValues] = useState(nobody)
  const [isVerified, setVerified] = useState(false)
  const set = (name: keyof NewUserValues) => (event: { readonly target: { readonly value: string } }) =>
    setValues((before) => ({ ...before, [name]: event.target.value }))
  const create = async () => {
    const { role_Id, tenant_Id, ...account } = values
    const given = Object.fromEntries(Object.entries(account).filter(([, value]) => value.trim() !== ''))
    const membership = { role_Id, ...(tenant_Id !== '' && { tenant_Id }) }
    const id = await createRow('svc_User', {
      ...given,
      ...(isVerified && { emailVerified: true }),
      ...(role_Id !== '' && { userRoles: [membership] }),
    })
    await refreshPeople()
    await navigate({ to: '/people/$id', params: { id } })
  }
  const chosen = [
    { name: 'role_Id' as const, label: 'Role', none: 'No role yet', options: roles.filter(isGiven) },
    { name: 'tenant_Id' as const, label: 'Tenant', none: 'No tenant', options: tenants },
  ].filter(({ options }) => options.length > 0)
  return (
    <FormDialog
      onClose={onClose}
      title="New user"
      description="They sign in with the password that you give them. No mail is sent."
      action="Create"
      isDisabled={values.firstName.trim() === ''}
      onConfirm={create}
    >
      <form className={styles.form} onSubmit={(event: FormEvent) => event.preventDefault()}>
        <TextField
          label="First name"
          required
          value={values.firstName}
          onChange={set('firstName')}
          autoComplete="off"
        />
        <TextField label="Last name" value={values.lastName} onChange={set('lastName')} autoComplete="off" />
        <TextField label="E-mail" type="email" value={values.email} onChange={set('email')} autoComplete="off" />
        <TextField
          label="Password"
          type="password"
          hint="At least 8 characters. Without one, they choose “Forgot your password?” to sign in: it mails them a code to set theirs."
          autoComplete="new-password"
          value={values.password}
          onChange={set('password')}
        />
        {chosen.map(({ name, label, none, options }) => (
          <Field key={name} label={label}>
            {(attributes) => (
              <Select
                {...attributes}
                value={values[name]}
                onChange={set(name)}
                options={[{ value: '', label: none }, ...options.map((one) => ({ value: one.id, label: one.name }))]}
              />
            )}
          </Field>
        ))}
        {me.isAdmin && (
          <Checkbox
            label="The address is known to be theirs"
            checked={isVerified}
            onChange={({ target }) => setVerified(target.checked)}
          />
        )}
      </form>
    </FormDialog>
  )
}

/** Nobody is given the role of strangers. */
const isGiven = ({ name }: { readonly name: string }): boolean => name !== 'public'
