import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { ChevronDown, ChevronRight, Database } from 'lucide-react'
import { useState } from 'react'
import { type Collection, useCatalog } from '../../app/catalog.ts'
import { useMe } from '../../app/session.ts'
import { Page } from '../../shell/page.tsx'
import { Button, looks } from '../../ui/button.tsx'
import { Input } from '../../ui/field.tsx'
import { Empty } from '../../ui/states.tsx'
import styles from './collections.module.css'
import { countQuery, estimatesQuery, estimateText } from './counts.ts'

/** All collections that the caller may see, with how many rows each has. */
export function Collections() {
  const catalog = useCatalog()
  const [wanted, setWanted] = useState('')
  const me = useMe()
  const found = [...catalog.values()]
    .filter(({ name, label }) => `${name} ${label}`.toLowerCase().includes(wanted.trim().toLowerCase()))
    .sort((a, b) => a.label.localeCompare(b.label))
  const groups = [
    { title: 'Collections', members: found.filter(({ isSystem, isJunction }) => !isSystem && !isJunction) },
    { title: 'Junctions', members: found.filter(({ isSystem, isJunction }) => !isSystem && isJunction) },
    { title: 'System', members: found.filter(({ isSystem }) => isSystem) },
  ].filter(({ members }) => members.length > 0)
  const hasOwn = [...catalog.values()].some(({ isSystem }) => !isSystem)
  return (
    <Page title="Data" description="What is stored, collection by collection.">
      <div className={styles.groups}>
        {catalog.size > 8 && (
          <Input
            className={styles.filter}
            type="search"
            data-filter
            aria-label="Find a collection"
            placeholder="Find a collection"
            value={wanted}
            onChange={({ target }) => setWanted(target.value)}
          />
        )}
        {!hasOwn && wanted === '' && (
          <Empty
            icon={<Database />}
            title="No collections yet"
            actions={
              me.isAdmin && (
                <Link to="/schema" search={{ open: 'new' }} {...looks({ kind: 'primary' })}>
                  Make the first one
                </Link>
              )
            }
          >
            <p>
              {me.isAdmin
                ? 'A collection is a table with an interface of its own.'
                : 'Your role does not grant any collection. An administrator can change that.'}
            </p>
          </Empty>
        )}
        {groups.length === 0 && wanted !== '' && <Empty title={`No collection has “${wanted}” in its name`} />}
        {groups.map(({ title, members }) => (
          <Group key={title} title={title} members={members} isOpen={title === 'Collections' || wanted !== ''} />
        ))}
      </div>
    </Page>
  )
}

type GroupProps = { readonly title: string; readonly members: readonly Collection[]; readonly isOpen: boolean }

/** Rows are counted where they are shown. */
function Group({ title, members, isOpen }: GroupProps) {
  const [isChosen, choose] = useState(false)
  const isShown = isOpen || isChosen
  return (
    <section className={styles.section} aria-label={title}>
      <h2>
        {isOpen ? (
          title
        ) : (
          <Button kind="ghost" size="s" aria-expanded={isShown} onClick={() => choose(!isChosen)}>
            {isShown ? <ChevronDown aria-hidden="true" /> : <ChevronRight aria-hidden="true" />}
            {title} ({members.length})
          </Button>
        )}
      </h2>
      {isShown && (
        <ul className={styles.list}>
          {members.map((collection) => (
            <Item key={collection.name} collection={collection} />
          ))}
        </ul>
      )}
    </section>
  )
}

function Item({ collection: { name, label, description } }: { readonly collection: Collection }) {
  const [isExact, setExact] = useState(false)
  const { data: estimates, error } = useQuery(estimatesQuery)
  const estimate = estimates?.get(name)
  const isEstimated = estimate !== undefined && !isExact
  return (
    <li className={styles.line}>
      <Link to="/data/$collection" params={{ collection: name }} className={styles.item}>
        <span className={styles.name}>
          {label}
          {label !== name && <code>{name}</code>}
        </span>
        <span className={styles.about}>{description}</span>
        <Count
          collection={name}
          estimate={estimate}
          isAsked={!isEstimated && (estimates !== undefined || error !== null)}
        />
      </Link>
      {isEstimated && (
        <Button size="s" kind="ghost" aria-label={`Count exactly: ${label}`} onClick={() => setExact(true)}>
          Count exactly
        </Button>
      )}
    </li>
  )
}

type CountProps = { readonly collection: string; readonly estimate: number | undefined; readonly isAsked: boolean }

function Count({ collection, estimate, isAsked }: CountProps) {
  const { data, error } = useQuery({ ...countQuery(collection), enabled: isAsked })
  if (error !== null) return <span className={styles.count}>–</span>
  const text = data?.toLocaleString() ?? (estimate === undefined || isAsked ? '…' : estimateText(estimate))
  return <span className={styles.count}>{text}</span>
}
