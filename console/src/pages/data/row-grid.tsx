import { Link, useNavigate } from '@tanstack/react-router'
import { KeyRound, Link2, Maximize2 } from 'lucide-react'
import { useCallback, useMemo, useRef, useState } from 'react'
import type { Catalog, Collection, Field } from '../../app/catalog.ts'
import { Grid, type GridPlace, type Place } from '../../ui/grid.tsx'
import { notify } from '../../ui/toast.tsx'
import { CellEditor } from './cell-editor.tsx'
import type { Conflict } from './conflict.ts'
import { keepPlace, type ListPlace } from './list-place.ts'
import { Merge } from './merge.tsx'
import type { ListSearch, Row } from './query.ts'
import type { RowWindow } from './row-window.ts'
import { extentOf, mostSelected, toggledAll } from './selection.ts'
import value from './value.module.css'
import { Value } from './value.tsx'
import { isNumeric } from './values.ts'
import { patchRow } from './writes.ts'

type RowGridProps = {
  readonly collection: Collection
  readonly catalog: Catalog
  readonly columns: readonly Field[]
  readonly rows: RowWindow
  readonly search: ListSearch
  /** Where the list was left. */
  readonly begin: ListPlace | undefined
  readonly selected: ReadonlyMap<string, Row>
  readonly onSelect: (change: (before: ReadonlyMap<string, Row>) => ReadonlyMap<string, Row>) => void
  readonly onSort: (sort: string | undefined) => void
  readonly onDelete: () => void
}

/** The grid of a collection: cells that are edited where they stand, rows that change as others change them. */
export function RowGrid({
  collection,
  catalog,
  columns,
  rows,
  search,
  begin,
  selected,
  onSelect,
  onSort,
  onDelete,
}: RowGridProps) {
  const navigate = useNavigate()
  const [widths, resize] = useWidths(collection.name)
  const [editing, setEditing] = useState<Place>()
  const [conflict, setConflict] = useState<Conflict>()
  const anchor = useRef(0)
  const keyOf = (row: Row) => String(row[collection.key])
  const linkTo = (row: Row) => ({
    to: '/data/$collection/$id' as const,
    params: { collection: collection.name, id: keyOf(row) },
    search: search.asOf === undefined ? {} : { asOf: search.asOf },
  })
  const names = columns.map(({ name }) => name).join()
  // By the names of the columns, so that rows stay as they are
  const gridColumns = useMemo(
    () =>
      columns.map((field) => ({
        key: field.name,
        title: field.name,
        icon: field.isKey ? (
          <KeyRound aria-hidden="true" />
        ) : field.relation === undefined ? undefined : (
          <Link2 aria-hidden="true" />
        ),
        width: widths[field.name] ?? widthOf(field),
        isNumber: isNumeric(field),
        canSort: !['json', 'geometry', 'vector'].includes(field.kind),
        sorted: sortedBy(search.sort, field.name),
        cell: (row: Row) =>
          field.isKey ? (
            <Link {...linkTo(row)} className={value.key} tabIndex={-1}>
              {keyOf(row)}
            </Link>
          ) : (
            <Value field={field} row={row} catalog={catalog} />
          ),
      })),
    [names, widths, search.sort, search.asOf, catalog],
  )
  const onView = useCallback((first: number, last: number) => rows.show(first, last), [rows])
  const onPlace = useCallback(
    (place: GridPlace) => keepPlace(collection.name, { ...place, count: rows.state.count }),
    [rows, collection.name],
  )
  const edit = (place: Place | undefined) => {
    const field = place === undefined ? undefined : columns[place.column]
    if (field === undefined) return setEditing(undefined)
    const reason = whyFixed(field, search)
    if (reason === undefined) setEditing(place)
    else notify(reason)
  }
  const select = (row: Row, index: number, how: 'toggle' | 'range') => {
    const from = anchor.current
    if (how === 'toggle') anchor.current = index
    onSelect((before) => {
      const next = new Map(before)
      if (how === 'toggle' && next.delete(keyOf(row))) return next
      for (
        let place = how === 'toggle' ? index : Math.min(from, index);
        place <= Math.max(how === 'toggle' ? index : from, index);
        place += 1
      ) {
        const one = rows.rowAt(place)
        if (one !== undefined) next.set(keyOf(one), one)
      }
      return next
    })
  }
  // It stays the same for the same rows, so that the head of the grid is made anew only with others.
  const selectAll = useCallback(
    () => onSelect((before) => toggledAll(before, rows.loaded(mostSelected), keyOf)),
    [rows, onSelect, collection.key],
  )
  return (
    <>
      <Grid<Row>
        label={`Rows of ${collection.label}`}
        columns={gridColumns}
        count={rows.state.count}
        version={rows.state.version}
        rowAt={(index) => rows.rowAt(index)}
        keyOf={keyOf}
        onView={onView}
        begin={begin}
        onPlace={onPlace}
        looksOf={(row) => ({
          isSelected: selected.has(keyOf(row)),
          isRemoved: rows.isRemoved(keyOf(row)),
          isChanged: rows.changedAt(keyOf(row)) !== undefined,
        })}
        onSort={(name) => onSort(nextSort(search.sort, name))}
        onResize={resize}
        onSelect={select}
        onSelectAll={selectAll}
        selection={extentOf(selected.size, rows.state.count)}
        onOpen={(row) => void navigate(linkTo(row))}
        openerOf={(row) => (
          <Link
            {...linkTo(row)}
            tabIndex={-1}
            title="Open"
            aria-label={`Open ${String(row[collection.titleField] ?? keyOf(row))}`}
          >
            <Maximize2 aria-hidden="true" />
          </Link>
        )}
        onDelete={onDelete}
        editing={editing}
        onEdit={edit}
        editor={(row, name) => (
          <CellEditor
            {...{ collection, catalog, row }}
            field={columns.find((field) => field.name === name)!}
            onClose={() => setEditing(undefined)}
            onSaved={(saved) => rows.patch(saved, Date.now())}
            onConflict={setConflict}
          />
        )}
      />
      {conflict !== undefined && (
        <Merge
          fields={collection.fields}
          conflict={conflict}
          isEntered
          onClose={() => setConflict(undefined)}
          onMerged={async (change, etag) => {
            if (Object.keys(change).length > 0) await patchRow(collection.name, keyOf(conflict.theirs), change, etag)
            rows.patch(
              { ...conflict.theirs, ...change, ...(Object.keys(change).length > 0 && conflict.related) },
              Date.now(),
            )
          }}
        />
      )}
    </>
  )
}

function whyFixed(field: Field, { asOf }: ListSearch): string | undefined {
  if (asOf !== undefined) return 'The past cannot be changed. Open the record to bring a value back.'
  if (field.isKey) return 'The key of a row stays as it is.'
  if (field.isGenerated) return `The server fills in ${field.name}.`
  if (!field.isChangeable) return `Your role does not change ${field.name}.`
  return undefined
}

const sortedBy = (sort: string | undefined, name: string) =>
  sort === name ? ('ascending' as const) : sort === `-${name}` ? ('descending' as const) : undefined

/** Ascending, descending, not at all. */
const nextSort = (sort: string | undefined, name: string): string | undefined =>
  sort === name ? `-${name}` : sort === `-${name}` ? undefined : name

function widthOf({ kind, name, relation }: Field): number {
  if (relation !== undefined) return 180
  const known = {
    boolean: 100,
    integer: 110,
    decimal: 110,
    float: 120,
    uuid: 150,
    datetime: 180,
    date: 120,
    json: 220,
    'long text': 280,
  }
  return known[kind as keyof typeof known] ?? (/name|title|email|subject/i.test(name) ? 240 : 160)
}

type Widths = Readonly<Record<string, number>>

/** The widths of columns, as this browser has them. */
function useWidths(collection: string): readonly [Widths, (name: string, width: number) => void] {
  const key = `daybook-console:widths:${collection}`
  const [widths, setWidths] = useState<Widths>(() => JSON.parse(localStorage.getItem(key) ?? '{}') as Widths)
  const resize = (name: string, width: number) =>
    setWidths((before) => {
      const next = { ...before, [name]: width }
      localStorage.setItem(key, JSON.stringify(next))
      return next
    })
  return [widths, resize]
}
