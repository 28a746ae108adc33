import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { Plus } from 'lucide-react'
import { type FormEvent, useState } from 'react'
import { catalogQuery } from '../../app/catalog.ts'
import { queryClient } from '../../app/client.ts'
import { useMe } from '../../app/session.ts'
import { Button } from '../../ui/button.tsx'
import { ConfirmDialog } from '../../ui/dialog.tsx'
import { Checkbox, TextField } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/leaving.tsx'
import { Loading, Problem } from '../../ui/states.tsx'
import { Table } from '../../ui/table.tsx'
import { createRow, deleteRows, patchRow } from '../data/writes.ts'
import styles from './people.module.css'
import { membersQuery, type Role, refreshPeople, rolesQuery } from './people.ts'
import { PeoplePage } from './people-page.tsx'

/** Two that the server itself gives a meaning. */
const fixed = new Set(['administrator', 'public'])

type Edit = { readonly how: 'new' } | { readonly how: 'edit' | 'delete'; readonly role: Role }

/** The roles there are, who has them, and whom their holders may invite. */
export function Roles() {
  const me = useMe()
  const { data: roles, error, refetch } = useQuery(rolesQuery)
  const { data: members } = useQuery(membersQuery('role_Id'))
  const [edit, setEdit] = useState<Edit>()
  const close = () => setEdit(undefined)
  return (
    <PeoplePage
      title="Roles"
      description="What people are; the permissions page says what each role may do."
      actions={
        me.isAdmin && (
          <Button kind="primary" onClick={() => setEdit({ how: 'new' })}>
            <Plus aria-hidden="true" /> New role
          </Button>
        )
      }
    >
      {error !== null && <Problem error={error} onRetry={() => void refetch()} />}
      {error === null && roles === undefined && <Loading label="Roles are loading" />}
      {roles !== undefined && (
        <Table
          label="Roles"
          rows={roles}
          keyOf={({ id }) => id}
          columns={[
            { title: 'Name', cell: ({ name }) => <strong>{name}</strong> },
            { title: 'For', cell: ({ description }) => description ?? '–' },
            {
              title: 'Users',
              isNumber: true,
              cell: ({ id }) => (
                <Link to="/people" search={{ role: id }}>
                  {members === undefined ? '…' : (members.get(id) ?? 0).toLocaleString()}
                </Link>
              ),
            },
            {
              title: 'May invite',
              cell: ({ name, canInviteRoleIds }) =>
                name === 'administrator' ? 'all' : invited(roles, canInviteRoleIds),
            },
            {
              title: <span className="visually-hidden">Actions</span>,
              cell: (role) => me.isAdmin && <Actions role={role} onEdit={setEdit} />,
            },
          ]}
        />
      )}
      {edit?.how === 'delete' && <Delete role={edit.role} onClose={close} />}
      {edit !== undefined && edit.how !== 'delete' && roles !== undefined && (
        <Editor role={edit.how === 'edit' ? edit.role : undefined} roles={roles} onClose={close} />
      )}
    </PeoplePage>
  )
}

const invited = (roles: readonly Role[], ids: readonly string[] | null): string =>
  roles
    .filter(({ id }) => (ids ?? []).includes(id))
    .map(({ name }) => name)
    .join(', ') || 'nobody'

function Actions({ role, onEdit }: { readonly role: Role; readonly onEdit: (edit: Edit) => void }) {
  return (
    <span className={styles.actions}>
      <Button size="s" aria-label={`Edit ${role.name}`} onClick={() => onEdit({ how: 'edit', role })}>
        Edit
      </Button>
      {!fixed.has(role.name) && (
        <Button size="s" aria-label={`Delete ${role.name}`} onClick={() => onEdit({ how: 'delete', role })}>
          Delete…
        </Button>
      )}
    </span>
  )
}

/** The permissions page and the navigation know roles too. */
async function refresh(): Promise<void> {
  await refreshPeople()
  await queryClient.invalidateQueries({ queryKey: ['permissions'] })
  await queryClient.invalidateQueries({ queryKey: catalogQuery.queryKey })
}

function Delete({ role, onClose }: { readonly role: Role; readonly onClose: () => void }) {
  return (
    <ConfirmDialog
      isOpen
      onClose={onClose}
      title={`Delete the role ${role.name}`}
      action="Delete"
      isDangerous
      onConfirm={async () => {
        await deleteRows('svc_Role', [role.id])
        await refresh()
      }}
    >
      <p>Its permissions and open invitations go with it. A role that somebody has is not deleted.</p>
    </ConfirmDialog>
  )
}

type EditorProps = { readonly role: Role | undefined; readonly roles: readonly Role[]; readonly onClose: () => void }

function Editor({ role, roles, onClose }: EditorProps) {
  const [name, setName] = useState(role?.name ?? '')
  const [description, setDescription] = useState(role?.description ?? '')
  const [isBound, setBound] = useState(role?.isTenantSpecific ?? true)
  const [invites, setInvites] = useState<readonly string[]>(role?.canInviteRoleIds ?? [])
  const save = async () => {
    const row = {
      ...(name !== role?.name && { name: name.trim() }),
      description: description.trim() === '' ? null : description.trim(),
      isTenantSpecific: isBound,
      canInviteRoleIds: invites,
    }
    if (role === undefined) await createRow('svc_Role', row)
    else await patchRow('svc_Role', role.id, row, undefined)
    await refresh()
  }
  return (
    <FormDialog
      onClose={onClose}
      title={role === undefined ? 'New role' : `The role ${role.name}`}
      description={role === undefined ? 'It may do nothing until it is granted something.' : undefined}
      action={role === undefined ? 'Create' : 'Save'}
      isDisabled={name.trim() === ''}
      onConfirm={save}
    >
      <form className={styles.form} onSubmit={(event: FormEvent) => event.preventDefault()}>
        <TextField
          label="Name"
          autoComplete="off"
          disabled={role !== undefined && fixed.has(role.name)}
          value={name}
          onChange={({ target }) => setName(target.value)}
        />
        <TextField
          label="For"
          hint="In a few words, whom it is for."
          value={description}
          onChange={({ target }) => setDescription(target.value)}
        />
        <Checkbox
          label="Belongs to a tenant, where there are tenants"
          checked={isBound}
          onChange={({ target }) => setBound(target.checked)}
        />
        {role?.name !== 'administrator' && (
          <fieldset>
            <legend>May invite and give these roles</legend>
            {roles
              .filter((one) => !fixed.has(one.name))
              .map((one) => (
                <Checkbox
                  key={one.id}
                  label={one.name}
                  checked={invites.includes(one.id)}
                  onChange={({ target }) =>
                    setInvites(target.checked ? [...invites, one.id] : invites.filter((id) => id !== one.id))
                  }
                />
              ))}
          </fieldset>
        )}
      </form>
    </FormDialog>
  )
}
