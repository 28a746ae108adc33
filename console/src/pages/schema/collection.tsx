import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { Compass } from 'lucide-react'
import { useState } from 'react'
import { useMe } from '../../app/session.ts'
import { Page } from '../../shell/page.tsx'
import { looks } from '../../ui/button.tsx'
import { Empty, Loading, Problem } from '../../ui/states.tsx'
import { type Change, definitionsQuery, fieldChange, relationAddition, relationChange } from './changes.ts'
import { Constraints, Indexes } from './constraints.tsx'
import { type Definition, isAdded, isRelation } from './definitions.ts'
import { Fields, Relations } from './entries.tsx'
import { FieldForm } from './field-form.tsx'
import { ForAdministrators } from './for-administrators.tsx'
import { RelationChange, RelationForm, relationshipOf } from './relation-form.tsx'
import { Review } from './review.tsx'
import { type CollectionSearch, type Part, parts } from './routes.ts'
import styles from './schema.module.css'
import { AsJson, Settings } from './settings.tsx'

/** One collection's definition, part by part. Every change is shown before it is made. */
export function CollectionSchema() {
  const { collection } = useParams({ from: '/shell/schema/$collection' })
  const { isAdmin } = useMe()
  const { data, error, refetch } = useQuery(definitionsQuery)
  if (!isAdmin) return <ForAdministrators />
  if (error !== null) return <Problem error={error} onRetry={() => void refetch()} />
  if (data === undefined) return <Loading label="Definitions are loading" />
  const definition = data.find(({ collectionName }) => collectionName === collection)
  return definition === undefined ? <Unknown collection={collection} /> : <Editor definition={definition} />
}

function Unknown({ collection }: { readonly collection: string }) {
  return (
    <Page title={collection} crumbs={<Link to="/schema">Schema</Link>}>
      <Empty
        icon={<Compass />}
        title={`There is no collection ${collection}`}
        actions={
          <Link to="/schema" {...looks()}>
            All collections
          </Link>
        }
      />
    </Page>
  )
}

/** The properties of the parts of the page. */
export type PartProps = {
  readonly definition: Definition
  /** Shows a change, which is made there. */
  readonly onChange: (change: Change) => void
  /** Opens the form of an entry, or an empty one. */
  readonly onOpen: (search: Pick<CollectionSearch, 'edit' | 'add'>) => void
}

const titles: Readonly<Record<Part, string>> = {
  fields: 'Fields',
  relations: 'Relations',
  indexes: 'Indexes',
  constraints: 'Constraints',
  settings: 'Settings',
  json: 'JSON',
}

function Editor({ definition }: { readonly definition: Definition }) {
  const { collectionName: name, schema } = definition
  const search = useSearch({ from: '/shell/schema/$collection' })
  const navigate = useNavigate({ from: '/schema/$collection' })
  const [change, setChange] = useState<Change>()
  const part = search.part ?? 'fields'
  const open = (entry: Pick<CollectionSearch, 'edit' | 'add'>) =>
    void navigate({
      search: { part: search.part, ...entry },
      replace: entry.edit === undefined && !entry.add,
      // The forms that it closes have asked before.
      ignoreBlocker: true,
    })
  const props: PartProps = { definition, onChange: setChange, onOpen: open }
  const done = () => {
    if (change?.method === 'DELETE' && change.path === `/schemas/${name}`)
      void navigate({ to: '/schema', ignoreBlocker: true })
    else open({})
  }
  return (
    <Page
      title={schema.name ?? name}
      crumbs={<Link to="/schema">Schema</Link>}
      description={schema.description}
      actions={
        <Link to="/data/$collection" params={{ collection: name }} {...looks()}>
          Rows
        </Link>
      }
    >
      <nav className={styles.tabs} aria-label="Parts of the definition">
        {parts.map((one) => (
          <Link
            key={one}
            to="/schema/$collection"
            params={{ collection: name }}
            search={{ part: one }}
            className={styles.tab}
            aria-current={one === part ? 'page' : undefined}
          >
            {titles[one]}
          </Link>
        ))}
      </nav>
      {part === 'fields' && <Fields {...props} />}
      {part === 'relations' && <Relations {...props} />}
      {part === 'indexes' && <Indexes {...props} isAdding={search.add === true} />}
      {part === 'constraints' && <Constraints {...props} isAdding={search.add === true} />}
      {part === 'settings' && <Settings key={JSON.stringify(schema)} {...props} />}
      {part === 'json' && <AsJson key={JSON.stringify(schema)} {...props} />}
      <OpenForm key={`${part} ${search.edit ?? ''}`} {...props} part={part} search={search} />
      {change !== undefined && <Review change={change} onClose={() => setChange(undefined)} onDone={done} />}
    </Page>
  )
}

type OpenFormProps = PartProps & { readonly part: Part; readonly search: CollectionSearch }

/** The form that the address names. */
function OpenForm({ definition, part, search: { edit, add }, onChange, onOpen }: OpenFormProps) {
  const { collectionName, schema } = definition
  const entry = edit === undefined ? undefined : schema.fields[edit]
  const taken = Object.keys(schema.fields)
  const close = () => onOpen({})
  if (part === 'fields' && (add === true || (entry !== undefined && !isRelation(entry) && !isAdded(entry))))
    return (
      <FieldForm
        collection={collectionName}
        name={edit}
        entry={entry}
        taken={taken}
        action="Review…"
        onDone={(name, next) => onChange(fieldChange(collectionName, name, next, entry === undefined))}
        onClose={close}
      />
    )
  if (part === 'relations' && add === true)
    return (
      <RelationForm
        collection={collectionName}
        taken={taken}
        action="Review…"
        onDone={(relation) => onChange(relationAddition(collectionName, relationshipOf(relation)))}
        onClose={close}
      />
    )
  if (part === 'relations' && edit !== undefined && entry !== undefined && isRelation(entry))
    return (
      <RelationChange
        title={`${collectionName}.${edit}`}
        entry={entry}
        onDone={(body) => onChange(relationChange(collectionName, edit, body))}
        onClose={close}
      />
    )
  return null
}
