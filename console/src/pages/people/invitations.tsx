import { useQuery, useSuspenseQuery } from '@tanstack/react-query'
import { MailPlus } from 'lucide-react'
import { type FormEvent, useState } from 'react'
import { client, queryClient } from '../../app/client.ts'
import { infoQuery, useMe } from '../../app/session.ts'
import { Button } from '../../ui/button.tsx'
import { Field, Select, TextField } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/leaving.tsx'
import { Empty, Loading, Problem } from '../../ui/states.tsx'
import { Badge, Table } from '../../ui/table.tsx'
import { notify, notifyError } from '../../ui/toast.tsx'
import { timeText } from '../data/values.ts'
import styles from './people.module.css'
import { rolesQuery, tenantsQuery } from './people.ts'
import { PeoplePage } from './people-page.tsx'

type Invitation = {
  readonly id: string
  readonly email: string
  readonly status: 'pending' | 'accepted' | 'expired' | 'revoked'
  readonly expiresAt: string
  readonly createdAt: string
  readonly role_Id: string
  readonly tenant_Id: string | null
  readonly role?: { readonly name: string } | null
  readonly tenant?: { readonly name: string } | null
  readonly inviter?: { readonly email: string | null } | null
}

const fields = [
  ...['id', 'email', 'status', 'expiresAt', 'createdAt', 'role_Id', 'tenant_Id'],
  ...['role.name', 'tenant.name', 'inviter.email'],
]
const queryKey = ['people', 'invitations']

/** Invitations: the address, the tenant and the role. */
export function Invitations() {
  const { data: info } = useSuspenseQuery(infoQuery)
  const [isInviting, setInviting] = useState(false)
  const { data, error, refetch } = useQuery({
    queryKey,
    queryFn: async () =>
      (
        await client.request<{ data: readonly Invitation[] }>('/items/svc_Invite', {
          query: { fields: fields.join(','), sort: '-createdAt', limit: 200 },
        })
      ).data,
    enabled: info.project.multitenant,
  })
  if (!info.project.multitenant)
    return (
      <PeoplePage title="Invitations" description="Asking somebody by mail to join a tenant.">
        <Empty title="This server has no tenants">
          <p>Invitations lead to tenants: they need MULTI_TENANT=true. Make users on their own page instead.</p>
        </Empty>
      </PeoplePage>
    )
  return (
    <PeoplePage
      title="Invitations"
      description="Asking somebody by mail to join a tenant. The last 200."
      actions={
        <Button kind="primary" onClick={() => setInviting(true)}>
          <MailPlus aria-hidden="true" /> Invite
        </Button>
      }
    >
      {error !== null && <Problem error={error} onRetry={() => void refetch()} />}
      {error === null && data === undefined && <Loading label="Invitations are loading" />}
      {data?.length === 0 && (
        <Empty icon={<MailPlus />} title="Nobody has been invited">
          <p>An invitation is mailed, and open for seven days.</p>
        </Empty>
      )}
      {data !== undefined && data.length > 0 && <List invitations={data} />}
      {isInviting && <Invite onClose={() => setInviting(false)} />}
    </PeoplePage>
  )
}

const tones = { pending: 'info', accepted: 'good', expired: 'warn', revoked: 'bad' } as const

function List({ invitations }: { readonly invitations: readonly Invitation[] }) {
  return (
    <Table
      label="Invitations"
      rows={invitations}
      keyOf={({ id }) => id}
      columns={[
        { title: 'E-mail', cell: ({ email }) => email },
        { title: 'Role', cell: ({ role }) => role?.name ?? '–' },
        { title: 'Tenant', cell: ({ tenant }) => tenant?.name ?? '–' },
        {
          title: 'State',
          cell: (invitation) => <Badge tone={tones[stateOf(invitation)]}>{stateOf(invitation)}</Badge>,
        },
        {
          title: 'Sent',
          cell: ({ createdAt, inviter }) => `${timeText(createdAt)} by ${inviter?.email ?? 'somebody'}`,
        },
        { title: 'Open until', cell: ({ expiresAt }) => timeText(expiresAt) },
        { title: <span className="visually-hidden">Actions</span>, cell: (one) => <Actions invitation={one} /> },
      ]}
    />
  )
}

/** One that is over is only marked when somebody else is invited. */
const stateOf = ({ status, expiresAt }: Invitation): Invitation['status'] =>
  status === 'pending' && Date.parse(expiresAt) < Date.now() ? 'expired' : status

const revoke = (id: string) =>
  client.request(`/items/svc_Invite/${id}`, { method: 'PATCH', body: { status: 'revoked' } })

const send = (body: { readonly email: string; readonly role_Id: string; readonly tenant_Id?: string }) =>
  client.request('/auth/invite', { method: 'POST', body })

function Actions({ invitation }: { readonly invitation: Invitation }) {
  const { id, email, role_Id, tenant_Id, status } = invitation
  const [isBusy, setBusy] = useState(false)
  if (status === 'accepted') return null
  const run = async (done: string, work: () => Promise<unknown>) => {
    setBusy(true)
    try {
      await work()
      notify(done)
    } catch (error) {
      notifyError(error)
    } finally {
      setBusy(false)
      await queryClient.invalidateQueries({ queryKey })
    }
  }
  const again = async () => {
    // The link of the former mail ends with it.
    if (stateOf(invitation) === 'pending') await revoke(id)
    await send({ email, role_Id, ...(tenant_Id !== null && { tenant_Id }) })
  }
  return (
    <span className={styles.actions}>
      <Button
        size="s"
        isBusy={isBusy}
        aria-label={`Send again to ${email}`}
        onClick={() => void run(`Sent to ${email} again`, again)}
      >
        Send again
      </Button>
      {stateOf(invitation) === 'pending' && (
        <Button
          size="s"
          isBusy={isBusy}
          aria-label={`Revoke the invitation of ${email}`}
          onClick={() => void run('Revoked: the mailed link opens nothing any more', () => revoke(id))}
        >
          Revoke
        </Button>
      )}
    </span>
  )
}

function Invite({ onClose }: { readonly onClose: () => void }) {
  const me = useMe()
  const { data: roles = [], error } = useQuery(rolesQuery)
  const { data: tenants = [] } = useQuery({ ...tenantsQuery, enabled: me.isAdmin })
  const [email, setEmail] = useState('')
  const [roleId, setRoleId] = useState('')
  const [tenantId, setTenantId] = useState(me.tenantId ?? '')
  const own = roles.find(({ id }) => id === me.role?.id)
  const possible = roles.filter(({ id, name }) =>
    me.isAdmin ? name !== 'public' : (own?.canInviteRoleIds ?? []).includes(id),
  )
  const invite = async () => {
    await send({ email, role_Id: roleId, ...(tenantId !== '' && { tenant_Id: tenantId }) })
    await queryClient.invalidateQueries({ queryKey })
    notify(`${email} is invited`)
  }
  return (
    <FormDialog
      onClose={onClose}
      title="Invite somebody"
      description="They are mailed a link that is open for seven days and lets them join in this role."
      action="Invite"
      isDisabled={email === '' || roleId === '' || (me.isAdmin && tenantId === '')}
      onConfirm={invite}
    >
      <form className={styles.form} onSubmit={(event: FormEvent) => event.preventDefault()}>
        {error !== null && <Problem error={error} />}
        <TextField
          label="E-mail"
          type="email"
          autoComplete="off"
          value={email}
          onChange={({ target }) => setEmail(target.value)}
        />
        <Choose label="Role" value={roleId} onChoose={setRoleId} options={possible} />
        {me.isAdmin && <Choose label="Tenant" value={tenantId} onChoose={setTenantId} options={tenants} />}
      </form>
    </FormDialog>
  )
}

type ChooseProps = {
  readonly label: string
  readonly value: string
  readonly onChoose: (id: string) => void
  readonly options: readonly { readonly id: string; readonly name: string }[]
}

function Choose({ label, value, onChoose, options }: ChooseProps) {
  return (
    <Field label={label}>
      {(attributes) => (
        <Select
          {...attributes}
          value={value}
          onChange={({ target }) => onChoose(target.value)}
          options={[{ value: '', label: 'Choose one' }, ...options.map(({ id, name }) => ({ value: id, label: name }))]}
        />
      )}
    </Field>
  )
}
