import { useSuspenseQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import { useCatalog } from '../../app/catalog.ts'
import { Page } from '../../shell/page.tsx'
import { looks } from '../../ui/button.tsx'
import { Checkbox, Input } from '../../ui/field.tsx'
import { Empty } from '../../ui/states.tsx'
import { PermissionEditor } from './editor.tsx'
import { type Action, actions } from './fields.ts'
import styles from './permissions.module.css'
import { isLimited, type Permission, permissionsQuery, type Role, rolesQuery } from './rules.ts'

/** Roles × collections: who may do what, at a glance, and the way to each rule. */
export function Permissions() {
  const { data: roles } = useSuspenseQuery(rolesQuery)
  const { data: permissions } = useSuspenseQuery(permissionsQuery)
  const catalog = useCatalog()
  const search = useSearch({ from: '/shell/permissions' })
  const navigate = useNavigate({ from: '/permissions' })
  const [wanted, setWanted] = useState('')
  const granted = new Map(permissions.map((one) => [`${one.role_Id} ${one.collection} ${one.action}`, one]))
  const shown = [...catalog.values()]
    .filter(({ isSystem }) => !isSystem || search.system === true)
    .filter(({ name, label }) => `${name} ${label}`.toLowerCase().includes(wanted.trim().toLowerCase()))
    .sort((a, b) => a.name.localeCompare(b.name))
  const columns = roles.filter(({ name }) => name !== 'administrator')
  const open = roles.find(({ id }) => id === search.role)
  return (
    <Page
      title="Permissions"
      description="What each role may do with each collection. Administrators may do everything."
      actions={
        <>
          <Link to="/permissions/rules" {...looks()}>
            Named rules
          </Link>
          <Link to="/permissions/explain" {...looks()}>
            Explain
          </Link>
        </>
      }
    >
      <div className={styles.tools}>
        <Input
          type="search"
          data-filter
          aria-label="Find a collection"
          placeholder="Find a collection"
          value={wanted}
          onChange={({ target }) => setWanted(target.value)}
        />
        <Checkbox
          label="Collections of the system"
          checked={search.system === true}
          onChange={({ target }) =>
            navigate({ search: (before) => ({ ...before, system: target.checked || undefined }), replace: true })
          }
        />
      </div>
      {shown.length === 0 ? (
        <Empty title="No such collection" />
      ) : (
        <Matrix
          roles={columns}
          collections={shown.map(({ name }) => name)}
          grantedTo={(role, collection, action) => granted.get(`${role} ${collection} ${action}`)}
          onOpen={(role, collection) => navigate({ search: (before) => ({ ...before, role, collection }) })}
        />
      )}
      <p className={styles.legend}>
        <Mark state="all" action="read" /> every row and field <Mark state="some" action="read" /> limited by a rule or
        to fields <Mark state="none" action="read" /> nothing
      </p>
      {open !== undefined && search.collection !== undefined && (
        <PermissionEditor
          key={`${open.id} ${search.collection}`}
          role={open}
          collection={search.collection}
          stored={actions.flatMap((action) => granted.get(`${open.id} ${search.collection} ${action}`) ?? [])}
          onClose={() => navigate({ search: ({ system }) => ({ system }), ignoreBlocker: true })}
        />
      )}
    </Page>
  )
}

type MatrixProps = {
  readonly roles: readonly Role[]
  readonly collections: readonly string[]
  readonly grantedTo: (role: string, collection: string, action: Action) => Permission | undefined
  readonly onOpen: (role: string, collection: string) => void
}

function Matrix({ roles, collections, grantedTo, onOpen }: MatrixProps) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard
    <section className={styles.frame} aria-label="Roles and collections" tabIndex={0}>
      <table className={styles.matrix}>
        <thead>
          <tr>
            <th scope="col">Collection</th>
            {roles.map(({ id, name }) => (
              <th key={id} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {collections.map((collection) => (
            <tr key={collection}>
              <th scope="row">{collection}</th>
              {roles.map(({ id, name }) => (
                <td key={id}>
                  <button
                    type="button"
                    className={styles.cell}
                    aria-label={`${name}, ${collection}: ${inWords((action) => grantedTo(id, collection, action))}`}
                    onClick={() => onOpen(id, collection)}
                  >
                    {actions.map((action) => (
                      <Mark key={action} action={action} state={stateOf(grantedTo(id, collection, action))} />
                    ))}
                  </button>
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  )
}

type State = 'all' | 'some' | 'none'

const stateOf = (permission: Permission | undefined): State =>
  permission === undefined ? 'none' : isLimited(permission) ? 'some' : 'all'

function inWords(grantOf: (action: Action) => Permission | undefined): string {
  const may = actions.filter((action) => grantOf(action) !== undefined)
  return may.length === 0
    ? 'nothing'
    : may.map((action) => `${action}${stateOf(grantOf(action)) === 'some' ? ' some' : ''}`).join(', ')
}

function Mark({ action, state }: { readonly action: Action; readonly state: State }) {
  return <span className={styles.mark} data-state={state} data-letter={action[0]!.toUpperCase()} aria-hidden="true" />
}
