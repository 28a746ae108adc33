import { useQuery, useSuspenseQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { Check, Minus, X } from 'lucide-react'
import { type FormEvent, useState } from 'react'
import { useCatalog } from '../../app/catalog.ts'
import { client } from '../../app/client.ts'
import { Page } from '../../shell/page.tsx'
import { Button } from '../../ui/button.tsx'
import { Field, Select, TextField } from '../../ui/field.tsx'
import { Empty, Loading, Problem } from '../../ui/states.tsx'
import { Badge } from '../../ui/table.tsx'
import { actions } from './fields.ts'
import styles from './permissions.module.css'
import type { ExplainSearch } from './routes.ts'
import { rolesQuery } from './rules.ts'

/** Why somebody may or may not: who × action × item, and the rule taken apart. */
export function Explain() {
  const search = useSearch({ from: '/shell/permissions/explain' })
  const isWhole = search.collection !== undefined && (search.role ?? search.user) !== undefined
  return (
    <Page
      title="Explain"
      crumbs={<Link to="/permissions">Permissions</Link>}
      description="Why somebody may do something, or not, answered by what decides their requests."
    >
      <div className={styles.explain}>
        <Question key={JSON.stringify(search)} search={search} />
        {isWhole ? <Answer search={search} /> : <Empty title="Ask about somebody and a collection" />}
      </div>
    </Page>
  )
}

function Question({ search }: { readonly search: ExplainSearch }) {
  const { data: roles } = useSuspenseQuery(rolesQuery)
  const catalog = useCatalog()
  const navigate = useNavigate({ from: '/permissions/explain' })
  const [email, setEmail] = useState('')
  const [error, setError] = useState<string>()
  const ask = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault()
    const given = Object.fromEntries(
      [...new FormData(event.currentTarget)].map(([name, value]) => [name, String(value)]),
    )
    const action = actions.find((one) => one === given.action)
    const asked = { collection: given.collection || undefined, action, id: given.id?.trim() || undefined }
    if (email.trim() === '') return navigate({ search: { ...asked, role: given.role || undefined } })
    const user = await userOf(email.trim())
    if (user === undefined) return setError('Nobody has this address or id')
    return navigate({ search: { ...asked, user } })
  }
  const names = [...catalog.keys()].sort()
  return (
    <form className={styles.question} onSubmit={ask}>
      <Field label="Role">
        {(attributes) => (
          <Select
            {...attributes}
            name="role"
            defaultValue={search.role ?? ''}
            options={[{ value: '', label: '–' }, ...roles.map(({ name }) => name)]}
          />
        )}
      </Field>
      <TextField
        label="or user"
        hint={search.user === undefined ? 'E-mail address or id' : `Now ${search.user}`}
        error={error}
        value={email}
        onChange={({ target }) => setEmail(target.value)}
      />
      <Field label="Action">
        {(attributes) => (
          <Select {...attributes} name="action" defaultValue={search.action ?? 'read'} options={actions} />
        )}
      </Field>
      <Field label="Collection">
        {(attributes) => (
          <Select {...attributes} name="collection" defaultValue={search.collection ?? names[0]} options={names} />
        )}
      </Field>
      <TextField label="Item" hint="Its key, if it is about one" name="id" defaultValue={search.id ?? ''} />
      <Button kind="primary" type="submit">
        Explain
      </Button>
    </form>
  )
}

async function userOf(text: string): Promise<string | undefined> {
  if (!text.includes('@')) return text
  const { data } = await client.request<{ data: readonly { readonly id: string }[] }>('/items/svc_User', {
    query: { filter: JSON.stringify({ email: text.toLowerCase() }), fields: 'id', limit: 1 },
  })
  return data[0]?.id
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
    <div className={styles.answer}>
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
      {id !== undefined && action !== 'create' && <Who collection={collection!} id={id} action={action} />}
    </div>
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

function Who(question: { readonly collection: string; readonly id: string; readonly action: string }) {
  const { data, error } = useQuery({
    queryKey: ['permissions', 'who', question],
    queryFn: async () =>
      (await client.request<{ data: Whole }>('/permissions/who', { method: 'POST', body: question })).data,
  })
  const words = { read: 'see', update: 'change', delete: 'delete' }[question.action] ?? question.action
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
                <small>{people.map(({ email, firstName }) => email ?? firstName).join(', ')}</small>
              </li>
            ))}
          {!data.complete && <li>Not everybody was looked at.</li>}
        </ul>
      )}
    </section>
  )
}
