import { useQuery, useSuspenseQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { Check, Minus, ShieldQuestion, X } from 'lucide-react'
import { type FormEvent, useState } from 'react'
import { useCatalog, useCollection } from '../../app/catalog.ts'
import { client } from '../../app/client.ts'
import { Page } from '../../shell/page.tsx'
import { Button } from '../../ui/button.tsx'
import { Field, Select } from '../../ui/field.tsx'
import { Empty, Loading, Note, Problem } from '../../ui/states.tsx'
import { Badge } from '../../ui/table.tsx'
import type { Choice } from '../data/draft.ts'
import { choiceOf, RelationPicker } from '../data/relation-picker.tsx'
import { type Action, actions } from './fields.ts'
import styles from './permissions.module.css'
import type { ExplainSearch } from './routes.ts'
import { rolesQuery } from './rules.ts'

/** Why somebody may or may not: who × action × item, and the rule taken apart. */
export function Explain() {
  const search = useSearch({ from: '/shell/permissions/explain' })
  const { collection, id, action = 'read' } = search
  const isWhole = collection !== undefined && (search.role ?? search.user) !== undefined
  return (
    <Page
      title="Explain"
      crumbs={<Link to="/permissions">Permissions</Link>}
      description="Why somebody may do something, or not, answered by what decides their requests."
    >
      <div className={styles.explain}>
        <Question key={JSON.stringify(search)} search={search} />
        <div className={styles.answer}>
          {isWhole && <Answer search={search} />}
          {!isWhole && collection === undefined && (
            <Empty icon={<ShieldQuestion aria-hidden="true" />} title="Ask about somebody and a collection">
              <p>Of one item you also see who else may.</p>
            </Empty>
          )}
          {!isWhole && collection !== undefined && (
            <Note>Choose a user or a role to see why they may, or may not.</Note>
          )}
          {collection !== undefined && id !== undefined && action !== 'create' && (
            <Who {...{ collection, id, action }} />
          )}
        </div>
      </div>
    </Page>
  )
}

function Question({ search }: { readonly search: ExplainSearch }) {
  const { data: roles } = useSuspenseQuery(rolesQuery)
  const catalog = useCatalog()
  const navigate = useNavigate({ from: '/permissions/explain' })
  const names = [...catalog.keys()].sort((a, b) => Number(isOfSystem(a)) - Number(isOfSystem(b)) || a.localeCompare(b))
  const [action, setAction] = useState<Action>(search.action ?? 'read')
  const [role, setRole] = useState(search.role ?? '')
  const [user, setUser] = useChoice('svc_User', search.user)
  const [collection, setCollection] = useState(search.collection ?? names[0] ?? '')
  const [item, setItem] = useChoice(collection, search.id)
  const ask = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault()
    const somebody = user === null ? { role: role || undefined } : { user: String(user.id) }
    void navigate({ search: { collection, action, id: item === null ? undefined : String(item.id), ...somebody } })
  }
  return (
    <form className={styles.question} onSubmit={ask}>
      <Field label="User">
        {(attributes) => (
          <RelationPicker
            attributes={attributes}
            collection="svc_User"
            label="User"
            value={user}
            onChange={(choice) => {
              setUser(choice)
              setRole('')
            }}
          />
        )}
      </Field>
      <Field label="Or anybody in the role">
        {(attributes) => (
          <Select
            {...attributes}
            value={role}
            onChange={({ target }) => {
              setRole(target.value)
              setUser(null)
            }}
            options={[{ value: '', label: '–' }, ...roles.map(({ name }) => name)]}
          />
        )}
      </Field>
      <Field label="Action">
        {(attributes) => (
          <Select
            {...attributes}
            value={action}
            onChange={({ target }) => setAction(target.value as Action)}
            options={actions}
          />
        )}
      </Field>
      <Field label="Collection">
        {(attributes) => (
          <Select
            {...attributes}
            value={collection}
            onChange={({ target }) => {
              setCollection(target.value)
              setItem(null)
            }}
            options={names}
          />
        )}
      </Field>
      <Field label="Item" hint="If it is about one; its name or its key.">
        {(attributes) => (
          <RelationPicker
            key={collection}
            attributes={attributes}
            collection={collection}
            label="Item"
            value={item}
            onChange={setItem}
          />
        )}
      </Field>
      <Button kind="primary" type="submit">
        Explain
      </Button>
    </form>
  )
}

const isOfSystem = (name: string): boolean => name.startsWith('svc_')

/** A row to begin with, by its key, with what people call it as soon as that is read; and how to choose another one. */
function useChoice(name: string, id: string | undefined) {
  const collection = useCollection(name)
  const [chosen, choose] = useState<Choice | null>()
  const { data } = useQuery({
    queryKey: ['choice', name, id],
    queryFn: async ({ signal }) => {
      const { key, titleField } = collection!
      return choiceOf(collection!, await client.items(name).read(id!, { fields: [key, titleField], signal }))
    },
    enabled: id !== undefined && collection !== undefined && chosen === undefined,
    // A deleted row goes by its key.
    retry: false,
  })
  const begun = id === undefined ? null : (data ?? { id, title: id })
  return [chosen === undefined ? begun : chosen, choose] as const
}

type Term = {
  readonly kind: 'all' | 'any' | 'not' | 'test'
  readonly holds: boolean | null
  readonly terms?: readonly Term[]
  readonly path?: string
  readonly stored?: unknown
  readonly resolved?: unknown
  readonly actual?: readonly unknown[] | null
}

type Explanation = {
  readonly allowed: boolean
  readonly decidedBy: string
  readonly reason: string
  readonly role: { readonly name: string } | null
  readonly permission: { readonly id: string; readonly acls: readonly { readonly name: string }[] } | null
  readonly fields: readonly string[] | null
  readonly dropped: readonly { readonly field: string; readonly reason: string }[] | null
  readonly terms: Term | null
  readonly tenantRule: { readonly applies: boolean; readonly holds: boolean | null }
  readonly row: { readonly exists: boolean; readonly deleted: boolean } | null
}

function Answer({ search }: { readonly search: ExplainSearch }) {
  const { role, user, collection, id, action = 'read' } = search
  const { data, error, refetch } = useQuery({
    queryKey: ['permissions', 'explain', search],
    queryFn: () =>
      client.request<Explanation>('/permissions/explain', {
        method: 'POST',
        body: { collection, action, ...(user === undefined ? { role } : { user }), ...(id !== undefined && { id }) },
      }),
  })
  if (error !== null) return <Problem error={error} onRetry={() => void refetch()} />
  if (data === undefined) return <Loading />
  return (
    <>
      <section className={styles.verdict} data-allowed={data.allowed} aria-label="Answer">
        <strong>{data.allowed ? 'Allowed' : 'Refused'}</strong>
        <span>{data.reason}</span>
        <small>
          Decided by the {data.decidedBy}
          {data.role !== null && ` · role ${data.role.name}`}
          {data.permission !== null &&
            data.permission.acls.length > 0 &&
            ` · ${data.permission.acls.map(({ name }) => name).join(', ')}`}
          {data.row !== null && !data.row.exists && ' · there is no such item'}
          {data.row?.deleted === true && ' · the item is deleted'}
        </small>
      </section>
      {data.terms !== null && (
        <section className={styles.part} aria-label="Conditions">
          <h2>Conditions</h2>
          <TermTree term={data.terms} />
        </section>
      )}
      {data.tenantRule.applies && (
        <section className={styles.part} aria-label="Tenant">
          <h2>Tenant</h2>
          <p>
            <Sign holds={data.tenantRule.holds} /> Rows are limited to the tenant.
          </p>
        </section>
      )}
      {data.fields !== null && (
        <section className={styles.part} aria-label="Fields">
          <h2>Fields</h2>
          <p className={styles.names}>
            {data.fields.map((name) => (
              <Badge key={name} tone="good">
                {name}
              </Badge>
            ))}
          </p>
          {data.dropped !== null && data.dropped.length > 0 && (
            <details>
              <summary>{data.dropped.length} left out</summary>
              <ul className={styles.dropped}>
                {data.dropped.map(({ field, reason }) => (
                  <li key={field}>
                    <code>{field}</code> {reason}
                  </li>
                ))}
              </ul>
            </details>
          )}
        </section>
      )}
    </>
  )
}

function TermTree({ term }: { readonly term: Term }) {
  if (term.kind === 'test')
    return (
      <p className={styles.test} data-holds={term.holds}>
        <Sign holds={term.holds} />
        <span>
          <code>{term.path}</code> {inWords(term.resolved ?? term.stored)}
          {term.actual !== null && term.actual !== undefined && (
            <small>
              {' '}
              · it has{' '}
              {term.actual.length === 0 ? 'none' : term.actual.map((value) => JSON.stringify(value)).join(', ')}
            </small>
          )}
        </span>
      </p>
    )
  const words = { all: 'All of', any: 'One of', not: 'Not' }[term.kind]
  return (
    <div className={styles.group}>
      <p>
        <Sign holds={term.holds} /> {words}
      </p>
      <div className={styles.terms}>
        {(term.terms ?? []).map((one, place) => (
          <TermTree key={`${String(place)}`} term={one} />
        ))}
      </div>
    </div>
  )
}

function inWords(value: unknown): string {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return `= ${JSON.stringify(value)}`
  return Object.entries(value)
    .map(([operator, operand]) => `${operator} ${JSON.stringify(operand)}`)
    .join(', ')
}

function Sign({ holds }: { readonly holds: boolean | null }) {
  const Icon = holds === null ? Minus : holds ? Check : X
  return (
    <span className={styles.sign} data-holds={holds}>
      <Icon aria-hidden="true" />
      <span className={styles.hidden}>{holds === null ? 'not asked' : holds ? 'true' : 'false'}</span>
    </span>
  )
}

type Whole = {
  readonly complete: boolean
  readonly strangers: boolean | null
  readonly roles: readonly {
    readonly role: { readonly id: string; readonly name: string }
    readonly users: number
    readonly allowed: number
    readonly people: readonly { readonly id: string; readonly email: string | null; readonly firstName: string }[]
  }[]
}

function Who(question: { readonly collection: string; readonly id: string; readonly action: Action }) {
  const { data, error } = useQuery({
    queryKey: ['permissions', 'who', question],
    queryFn: async () =>
      (await client.request<{ data: Whole }>('/permissions/who', { method: 'POST', body: question })).data,
  })
  const words = { read: 'see', create: 'make', update: 'change', delete: 'delete' }[question.action]
  return (
    <section className={styles.part} aria-label="Who else">
      <h2>Who can {words} this item</h2>
      {error !== null && <Problem error={error} />}
      {error === null && data === undefined && <Loading lines={3} />}
      {data !== undefined && (
        <ul className={styles.who}>
          {data.strangers === true && <li>Everybody, also without signing in</li>}
          {data.roles
            .filter(({ allowed }) => allowed > 0)
            .map(({ role, users, allowed, people }) => (
              <li key={role.id}>
                <strong>{role.name}</strong> {allowed.toLocaleString()} of {users.toLocaleString()}
                <ul className={styles.people}>
                  {people.map(({ id: user, email, firstName }) => (
                    <li key={user}>
                      <Link to="/permissions/explain" search={{ ...question, user }}>
                        {email ?? firstName}
                      </Link>
                    </li>
                  ))}
                </ul>
              </li>
            ))}
          {!data.complete && <li>Not everybody was looked at.</li>}
        </ul>
      )}
    </section>
  )
}
