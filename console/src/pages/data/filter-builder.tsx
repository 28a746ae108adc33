import { useState } from 'react'
import type { Catalog, Collection } from '../../app/catalog.ts'
import { Button } from '../../ui/button.tsx'
import { TextArea } from '../../ui/field.tsx'
import { Problem } from '../../ui/states.tsx'
import { type Filter, readFilter, writeFilter } from './filter.ts'
import styles from './filter-builder.module.css'
import { freshCondition, Group, targetOf } from './filter-group.tsx'

type BuilderProps = {
  readonly collection: Collection
  readonly catalog: Catalog
  readonly filter: Filter | undefined
  readonly onApply: (filter: Filter | undefined) => void
}

/** Builds any filter of the query language; as JSON where that is quicker. */
export function FilterBuilder({ collection, catalog, filter, onApply }: BuilderProps) {
  const isRelation = (path: string) => targetOf(path, collection, catalog) !== undefined
  const [group, setGroup] = useState(() => readFilter(filter ?? {}, isRelation))
  const [json, setJson] = useState<string>()
  const [error, setError] = useState<unknown>()
  const shown = group.members.length === 0 ? { ...group, members: [freshCondition(collection)] } : group
  const apply = () => {
    try {
      onApply(json === undefined ? writeFilter(shown) : json.trim() === '' ? undefined : (JSON.parse(json) as Filter))
    } catch (failure) {
      setError(failure)
    }
  }
  const toggleJson = () => {
    if (json === undefined) return setJson(JSON.stringify(writeFilter(shown) ?? {}, null, 2))
    try {
      setGroup(readFilter(JSON.parse(json) as Filter, isRelation))
      setJson(undefined)
      setError(undefined)
    } catch (failure) {
      setError(failure)
    }
  }
  return (
    <form
      className={styles.builder}
      onSubmit={(event) => {
        event.preventDefault()
        apply()
      }}
    >
      {json === undefined ? (
        <Group group={shown} collection={collection} catalog={catalog} onChange={setGroup} />
      ) : (
        <TextArea
          isCode
          rows={8}
          aria-label="Filter as JSON"
          value={json}
          onChange={({ target }) => setJson(target.value)}
        />
      )}
      {error !== undefined && <Problem error={error} />}
      <div className={styles.foot}>
        <Button size="s" kind="ghost" onClick={toggleJson}>
          {json === undefined ? 'Edit as JSON' : 'Edit as conditions'}
        </Button>
        <Button size="s" onClick={() => onApply(undefined)}>
          Clear
        </Button>
        <Button size="s" kind="primary" type="submit">
          Apply
        </Button>
      </div>
    </form>
  )
}
