import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { Building2, Plus } from 'lucide-react'
import { type FormEvent, useState } from 'react'
import { queryClient } from '../../app/client.ts'
import { tenantsQuery as ownTenantsQuery } from '../../app/session.ts'
import { Button } from '../../ui/button.tsx'
import { ConfirmDialog } from '../../ui/dialog.tsx'
import { TextField } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/leaving.tsx'
import { Empty, Loading, Problem } from '../../ui/states.tsx'
import { Table } from '../../ui/table.tsx'
import { timeText } from '../data/values.ts'
import { createRow, deleteRows, patchRow } from '../data/writes.ts'
import styles from './people.module.css'
import { membersQuery, refreshPeople, type Tenant, tenantsQuery } from './people.ts'
import { PeoplePage } from './people-page.tsx'

type Edit = { readonly how: 'new' } | { readonly how: 'rename' | 'delete'; readonly tenant: Tenant }

/** Every tenant, with the way to its members. */
export function Tenants() {
  const { data: tenants, error, refetch } = useQuery(tenantsQuery)
  const { data: members } = useQuery(membersQuery('tenant_Id'))
  const [edit, setEdit] = useState<Edit>()
  const close = () => setEdit(undefined)
  return (
    <PeoplePage
      title="Tenants"
      description="Who shares this server; each sees its own rows only."
      actions={
        <Button kind="primary" onClick={() => setEdit({ how: 'new' })}>
          <Plus aria-hidden="true" /> New tenant
        </Button>
      }
    >
      {error !== null && <Problem error={error} onRetry={() => void refetch()} />}
      {error === null && tenants === undefined && <Loading label="Tenants are loading" />}
      {tenants?.length === 0 && <Empty icon={<Building2 />} title="No tenants yet" />}
      {tenants !== undefined && tenants.length > 0 && (
        <Table
          label="Tenants"
          rows={tenants}
          keyOf={({ id }) => id}
          columns={[
            { title: 'Name', cell: ({ name }) => <strong>{name}</strong> },
            {
              title: 'Members',
              isNumber: true,
              cell: ({ id }) => (
                <Link to="/people" search={{ tenant: id }}>
                  {members === undefined ? '…' : (members.get(id) ?? 0).toLocaleString()}
                </Link>
              ),
            },
            { title: 'Since', cell: ({ createdAt }) => (createdAt === undefined ? '–' : timeText(createdAt)) },
            {
              title: <span className="visually-hidden">Actions</span>,
              cell: (tenant) => (
                <span className={styles.actions}>
                  <Button
                    size="s"
                    aria-label={`Rename ${tenant.name}`}
                    onClick={() => setEdit({ how: 'rename', tenant })}
                  >
                    Rename
                  </Button>
                  <Button
                    size="s"
                    aria-label={`Delete ${tenant.name}`}
                    onClick={() => setEdit({ how: 'delete', tenant })}
                  >
                    Delete…
                  </Button>
                </span>
              ),
            },
          ]}
        />
      )}
      {edit?.how === 'delete' && (
        <Delete tenant={edit.tenant} members={members?.get(edit.tenant.id) ?? 0} onClose={close} />
      )}
      {(edit?.how === 'new' || edit?.how === 'rename') && (
        <Name tenant={edit.how === 'rename' ? edit.tenant : undefined} onClose={close} />
      )}
    </PeoplePage>
  )
}

async function refresh(): Promise<void> {
  await refreshPeople()
  await queryClient.invalidateQueries({ queryKey: ownTenantsQuery.queryKey })
}

function Name({ tenant, onClose }: { readonly tenant: Tenant | undefined; readonly onClose: () => void }) {
  const [name, setName] = useState(tenant?.name ?? '')
  const save = async () => {
    if (tenant === undefined) await createRow('svc_Tenant', { name: name.trim() })
    else await patchRow('svc_Tenant', tenant.id, { name: name.trim() }, undefined)
    await refresh()
  }
  return (
    <FormDialog
      onClose={onClose}
      title={tenant === undefined ? 'New tenant' : `Rename ${tenant.name}`}
      action={tenant === undefined ? 'Create' : 'Rename'}
      isDisabled={name.trim() === '' || name.trim() === tenant?.name}
      onConfirm={save}
    >
      <form onSubmit={(event: FormEvent) => event.preventDefault()}>
        <TextField label="Name" autoComplete="off" value={name} onChange={({ target }) => setName(target.value)} />
      </form>
    </FormDialog>
  )
}

type DeleteProps = { readonly tenant: Tenant; readonly members: number; readonly onClose: () => void }

/** With a tenant goes all that it has: its name is typed, so that nobody does it by one click. */
function Delete({ tenant, members, onClose }: DeleteProps) {
  const [typed, setTyped] = useState('')
  return (
    <ConfirmDialog
      isOpen
      onClose={onClose}
      title={`Delete ${tenant.name}`}
      action="Delete with all rows"
      isDangerous
      isDisabled={typed !== tenant.name}
      onConfirm={async () => {
        await deleteRows('svc_Tenant', [tenant.id])
        await refresh()
      }}
    >
      <div className={styles.form}>
        <p>
          {members === 1 ? 'One member loses' : `${members.toLocaleString()} members lose`} their role here, and every
          row of the tenant is deleted.
        </p>
        <TextField
          label={`Type ${tenant.name}`}
          autoComplete="off"
          value={typed}
          onChange={({ target }) => setTyped(target.value)}
        />
      </div>
    </ConfirmDialog>
  )
}
