import { useQuery, useSuspenseQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { Plus } from 'lucide-react'
import { useState } from 'react'
import { infoQuery, useMe } from '../../app/session.ts'
import { Button } from '../../ui/button.tsx'
import { ConfirmDialog } from '../../ui/dialog.tsx'
import { Field, Select } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/leaving.tsx'
import { Loading, Note, Problem } from '../../ui/states.tsx'
import { createRow, deleteRows, patchRow } from '../data/writes.ts'
import { isLimited, type Permission, permissionsQuery } from '../permissions/rules.ts'
import styles from './people.module.css'
import { type Membership, nameOf, type Role, refreshPeople, rolesQuery, tenantsQuery, type User } from './people.ts'
import { Card } from './people-page.tsx'

type Edit = { readonly how: 'change' | 'take'; readonly membership: Membership } | { readonly how: 'give' }

/** The roles that somebody has, and where. What a change opens and shuts is shown before it is saved. */
export function Memberships({ user }: { readonly user: User }) {
  const { data: info } = useSuspenseQuery(infoQuery)
  const [edit, setEdit] = useState<Edit>()
  const memberships = user.userRoles ?? []
  const mayHaveMore = info.project.multitenant || memberships.length === 0
  const close = () => setEdit(undefined)
  return (
    <Card
      title="Roles"
      actions={
        mayHaveMore && (
          <Button size="s" onClick={() => setEdit({ how: 'give' })}>
            <Plus aria-hidden="true" /> Give a role
          </Button>
        )
      }
    >
      {memberships.length === 0 && <p>Without a role they can sign in nowhere.</p>}
      <ul className={styles.list}>
        {memberships.map((membership) => (
          <li key={membership.id} className={styles.item}>
            <span>
              {membership.role?.name ?? 'A role that you may not see'}
              {membership.tenant && <small>at {membership.tenant.name}</small>}
            </span>
            <span className={styles.actions}>
              <Button size="s" onClick={() => setEdit({ how: 'change', membership })}>
                Change…
              </Button>
              <Button size="s" onClick={() => setEdit({ how: 'take', membership })}>
                Take away…
              </Button>
            </span>
          </li>
        ))}
      </ul>
      {edit?.how === 'take' && <Take user={user} membership={edit.membership} onClose={close} />}
      {(edit?.how === 'change' || edit?.how === 'give') && (
        <Give user={user} before={edit.how === 'change' ? edit.membership : undefined} onClose={close} />
      )}
    </Card>
  )
}

type TakeProps = { readonly user: User; readonly membership: Membership; readonly onClose: () => void }

function Take({ user, membership, onClose }: TakeProps) {
  const place = membership.tenant ? ` at ${membership.tenant.name}` : ''
  return (
    <ConfirmDialog
      isOpen
      onClose={onClose}
      title={`Take ${membership.role?.name ?? 'the role'}${place} from ${nameOf(user)}`}
      action="Take away"
      isDangerous
      onConfirm={async () => {
        await deleteRows('svc_UserRole', [membership.id])
        await refreshPeople()
      }}
    >
      <p>Their sessions and keys{place} end.</p>
    </ConfirmDialog>
  )
}

type GiveProps = { readonly user: User; readonly before: Membership | undefined; readonly onClose: () => void }

function Give({ user, before, onClose }: GiveProps) {
  const { data: info } = useSuspenseQuery(infoQuery)
  const me = useMe()
  const { data: roles, error } = useQuery(rolesQuery)
  const { data: tenants = [] } = useQuery({ ...tenantsQuery, enabled: info.project.multitenant })
  const [roleId, setRoleId] = useState(before?.role_Id ?? '')
  const [tenantId, setTenantId] = useState('')
  const save = async () => {
    if (before !== undefined) await patchRow('svc_UserRole', before.id, { role_Id: roleId }, undefined)
    else
      await createRow('svc_UserRole', {
        ...{ user_Id: user.id, role_Id: roleId },
        ...(tenantId !== '' && { tenant_Id: tenantId }),
      })
    await refreshPeople()
  }
  const choices = (roles ?? []).filter(({ name }) => name !== 'public')
  const next = choices.find(({ id }) => id === roleId)
  return (
    <FormDialog
      onClose={onClose}
      title={before === undefined ? `A role for ${nameOf(user)}` : `Another role for ${nameOf(user)}`}
      action="Save"
      isDisabled={next === undefined || roleId === before?.role_Id}
      onConfirm={save}
    >
      <div className={styles.form}>
        {error !== null && <Problem error={error} />}
        <Field label="Role">
          {(attributes) => (
            <Select
              {...attributes}
              value={roleId}
              onChange={({ target }) => setRoleId(target.value)}
              options={[
                ...(before === undefined ? [{ value: '', label: 'Choose one' }] : []),
                ...choices.map(({ id, name }) => ({ value: id, label: name })),
              ]}
            />
          )}
        </Field>
        {before === undefined && tenants.length > 0 && (
          <Field label="Tenant">
            {(attributes) => (
              <Select
                {...attributes}
                value={tenantId}
                onChange={({ target }) => setTenantId(target.value)}
                options={[{ value: '', label: 'None' }, ...tenants.map(({ id, name }) => ({ value: id, label: name }))]}
              />
            )}
          </Field>
        )}
        {me.isAdmin && next !== undefined && roleId !== before?.role_Id && (
          <Comparison before={roles?.find(({ id }) => id === before?.role_Id)} after={next} />
        )}
      </div>
    </FormDialog>
  )
}

/** The items that one role opens and the other does not, by their grants. */
function Comparison({ before, after }: { readonly before: Role | undefined; readonly after: Role }) {
  const { data: permissions, error } = useQuery(permissionsQuery)
  if (error !== null) return <Problem error={error} />
  if (permissions === undefined) return <Loading lines={3} label="Comparing the roles" />
  if (after.name === 'administrator')
    return <Note kind="warning">Administrators may do everything, also with what is made later.</Note>
  const gained = grantsBeyond(permissions, after, before)
  const lost = before === undefined ? [] : grantsBeyond(permissions, before, after)
  const wasAdmin = before?.name === 'administrator'
  return (
    <div className={styles.change} data-impact>
      {wasAdmin && <Note kind="warning">They lose everything but what {after.name} may do.</Note>}
      {!wasAdmin && <Grants title="May then" none="They gain nothing." grants={gained} />}
      {!wasAdmin && before !== undefined && <Grants title="May no longer" none="They lose nothing." grants={lost} />}
      <Link to="/permissions">All permissions</Link>
    </div>
  )
}

type GrantsProps = { readonly title: string; readonly none: string; readonly grants: readonly string[] }

function Grants({ title, none, grants }: GrantsProps) {
  if (grants.length === 0) return <p>{none}</p>
  return (
    <section aria-label={title}>
      <strong>{title}</strong>
      <ul>
        {grants.map((grant) => (
          <li key={grant}>{grant}</li>
        ))}
      </ul>
    </section>
  )
}

/** In words, what the one role is granted and the other not at all, or only with limits. */
function grantsBeyond(permissions: readonly Permission[], of: Role, than: Role | undefined): readonly string[] {
  const held = new Map(
    permissions.filter(({ role_Id }) => role_Id === than?.id).map((one) => [`${one.collection} ${one.action}`, one]),
  )
  return permissions
    .filter(({ role_Id }) => role_Id === of.id)
    .flatMap((one) => {
      const other = held.get(`${one.collection} ${one.action}`)
      const what = `${one.action} ${one.collection}`
      if (other === undefined) return [isLimited(one) ? `${what}, within limits` : what]
      if (!isLimited(one) && isLimited(other)) return [`${what} without limits`]
      return isLimited(one) && isLimited(other) && !isSameRule(one, other) ? [`${what} by another rule`] : []
    })
    .sort()
}

const isSameRule = (a: Permission, b: Permission): boolean =>
  (['fields', 'conditions', 'relConditions', 'acl_Ids'] as const).every(
    (member) => JSON.stringify(a[member]) === JSON.stringify(b[member]),
  )
