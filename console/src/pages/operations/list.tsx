import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import { queryClient } from '../../app/client.ts'
import { Button } from '../../ui/button.tsx'
import { ConfirmDialog, Drawer } from '../../ui/dialog.tsx'
import { Input, Select } from '../../ui/field.tsx'
import { Empty, Loading, Problem } from '../../ui/states.tsx'
import { type Column, Table } from '../../ui/table.tsx'
import { notify, notifyError } from '../../ui/toast.tsx'
import { timeText } from '../data/values.ts'
import styles from './operations.module.css'
import type { SectionProps } from './operations.tsx'
import type { OperationsSearch } from './routes.ts'

export const pageSize = 50
const liveMs = 5000

/** Something that can be done with a row. */
export type Action<Row> = {
  readonly label: string
  readonly isFor?: (row: Row) => boolean
  readonly isDangerous?: boolean
  /** The question before the action; none where it can be taken back. */
  readonly question?: (row: Row) => ReactNode
  /** Does it, and says what was done; nothing where that shows by itself. */
  readonly run: (row: Row) => Promise<string | undefined>
}

type Filter = {
  readonly name: 'state' | 'queue'
  readonly label: string
  readonly options: readonly string[]
}

type Read<Row> = { readonly rows: readonly Row[]; readonly total?: number }

/** A list of the operations area, as data: what is read, how it looks, and what can be done with a row. */
export type Listing<Row> = {
  /** Of several: "jobs". */
  readonly name: string
  readonly read: (search: OperationsSearch) => Promise<Read<Row>>
  /** Where all is read at once: whether a row is among those that are wanted. */
  readonly narrow?: (row: Row, search: OperationsSearch) => boolean
  /** The row of an address that is not in the list that is shown. */
  readonly readOne?: (key: string) => Promise<Row | undefined>
  readonly keyOf: (row: Row) => string
  /** The name of a row; it opens the row, where there is something to open. */
  readonly titleOf: (row: Row) => string
  readonly title: string
  readonly columns: readonly Column<Row>[]
  readonly filters?: readonly Filter[]
  /** The label of the field that narrows the list by words. */
  readonly find?: string
  readonly actions?: readonly Action<Row>[]
  readonly detail?: (row: Row) => ReactNode
  readonly empty: { readonly title: string; readonly text?: string }
  /** Reads it again and again while it is shown. */
  readonly isLive?: boolean
}

type ListProps<Row> = SectionProps & { readonly listing: Listing<Row>; readonly tools?: ReactNode }

const listKey = 'operations'

/** After something was done: every list of the area is read again. */
export const refreshLists = (): Promise<void> => queryClient.invalidateQueries({ queryKey: [listKey] })

/** A list with its filters, what can be done with each row, and the row that is open. */
export function List<Row>({ listing, search, set, tools }: ListProps<Row>) {
  const { open: openKey, ...narrowed } = search
  const { narrow } = listing
  const { data, error, refetch } = useQuery({
    queryKey: [listKey, listing.name, narrow === undefined ? narrowed : 'all'],
    queryFn: () => listing.read(narrowed),
    placeholderData: keepPreviousData,
    ...(narrow !== undefined && {
      select: ({ rows }: Read<Row>) => ({ rows: rows.filter((one) => narrow(one, search)) }) as Read<Row>,
    }),
    refetchInterval: listing.isLive === true ? liveMs : false,
  })
  const row = useOpenRow(listing, data?.rows, openKey)
  const acting = useActing<Row>()
  return (
    <>
      <Filters listing={listing} search={search} set={set} tools={tools} />
      {error !== null && <Problem error={error} onRetry={() => void refetch()} />}
      {data === undefined && error === null && <Loading />}
      {data !== undefined && data.rows.length === 0 && (
        <Empty title={listing.empty.title}>{listing.empty.text !== undefined && <p>{listing.empty.text}</p>}</Empty>
      )}
      {data !== undefined && data.rows.length > 0 && (
        <Rows listing={listing} rows={data.rows} set={set} acting={acting} />
      )}
      <Pages
        total={data?.total}
        page={search.page ?? 1}
        onPage={(page) => set({ page: page > 1 ? page : undefined })}
      />
      {row !== undefined && (
        <Drawer
          isOpen
          title={listing.titleOf(row)}
          onClose={() => set({ open: undefined })}
          footer={<Buttons listing={listing} row={row} acting={acting} />}
        >
          <div className={styles.detail}>{listing.detail?.(row)}</div>
        </Drawer>
      )}
      {acting.asking !== undefined && (
        <ConfirmDialog
          isOpen
          title={`${acting.asking.action.label}?`}
          action={acting.asking.action.label}
          isDangerous={acting.asking.action.isDangerous === true}
          onClose={acting.stopAsking}
          onConfirm={() => acting.perform(acting.asking!.action, acting.asking!.row)}
        >
          {acting.asking.action.question?.(acting.asking.row)}
        </ConfirmDialog>
      )}
    </>
  )
}

function useOpenRow<Row>(listing: Listing<Row>, rows: readonly Row[] | undefined, key: string | undefined) {
  const listed = key === undefined ? undefined : rows?.find((row) => listing.keyOf(row) === key)
  const { readOne } = listing
  const { data } = useQuery({
    queryKey: [listKey, listing.name, 'one', key],
    queryFn: async () => (await readOne?.(key!)) ?? null,
    enabled: key !== undefined && rows !== undefined && listed === undefined && readOne !== undefined,
  })
  return listed ?? (key === undefined ? undefined : (data ?? undefined))
}

type Asking<Row> = { readonly action: Action<Row>; readonly row: Row }
type Acting<Row> = {
  readonly busy: boolean
  readonly asking: Asking<Row> | undefined
  readonly begin: (action: Action<Row>, row: Row) => void
  readonly perform: (action: Action<Row>, row: Row) => Promise<void>
  readonly stopAsking: () => void
}

function useActing<Row>(): Acting<Row> {
  const [asking, setAsking] = useState<Asking<Row>>()
  const [busy, setBusy] = useState(false)
  const perform = async (action: Action<Row>, row: Row) => {
    setBusy(true)
    try {
      const done = await action.run(row)
      if (done !== undefined) notify(done)
    } finally {
      setBusy(false)
      void refreshLists()
    }
  }
  return {
    busy,
    asking,
    perform,
    stopAsking: () => setAsking(undefined),
    begin: (action, row) =>
      action.question === undefined ? void perform(action, row).catch(notifyError) : setAsking({ action, row }),
  }
}

type RowsProps<Row> = {
  readonly listing: Listing<Row>
  readonly rows: readonly Row[]
  readonly set: SectionProps['set']
  readonly acting: Acting<Row>
}

function Rows<Row>({ listing, rows, set, acting }: RowsProps<Row>) {
  const { name, keyOf, titleOf, title, columns, actions = [], detail } = listing
  const titleColumn: Column<Row> = {
    title,
    cell: (row) =>
      detail === undefined ? (
        titleOf(row)
      ) : (
        <button type="button" className={styles.open} onClick={() => set({ open: keyOf(row) })}>
          {titleOf(row)}
        </button>
      ),
  }
  const acts: Column<Row> = {
    title: <span className="visually-hidden">What can be done</span>,
    cell: (row) => {
      // Actions that cannot be taken back are in the open row alone, after all that is known of it.
      const first = actions.find(({ isFor, isDangerous }) => isDangerous !== true && (isFor?.(row) ?? true))
      if (first === undefined) return null
      return (
        <Button size="s" disabled={acting.busy} onClick={() => acting.begin(first, row)}>
          {first.label}
        </Button>
      )
    },
  }
  return (
    <Table
      label={name}
      rows={rows}
      keyOf={keyOf}
      columns={[titleColumn, ...columns, ...(actions.length > 0 ? [acts] : [])]}
    />
  )
}

type ButtonsProps<Row> = { readonly listing: Listing<Row>; readonly row: Row; readonly acting: Acting<Row> }

function Buttons<Row>({ listing, row, acting }: ButtonsProps<Row>) {
  const possible = (listing.actions ?? []).filter(({ isFor }) => isFor?.(row) ?? true)
  return possible.map((action) => (
    <Button
      key={action.label}
      kind={action.isDangerous === true ? 'danger' : 'secondary'}
      disabled={acting.busy}
      onClick={() => acting.begin(action, row)}
    >
      {action.label}
    </Button>
  ))
}

function Filters<Row>({ listing, search, set, tools }: ListProps<Row>) {
  const { filters = [], find } = listing
  if (filters.length === 0 && find === undefined && tools === undefined) return null
  return (
    <div className={styles.tools}>
      {filters.map(({ name, label, options }) => (
        <Select
          key={name}
          size="s"
          aria-label={label}
          value={search[name] ?? ''}
          options={[{ value: '', label: `${label}: all` }, ...options]}
          onChange={({ target }) => set({ [name]: target.value || undefined, page: undefined })}
        />
      ))}
      {find !== undefined && (
        <Input
          size="s"
          type="search"
          data-filter
          aria-label={find}
          placeholder={find}
          defaultValue={search.find ?? ''}
          onChange={({ target }) => set({ find: target.value || undefined, page: undefined })}
        />
      )}
      {tools !== undefined && <span className={styles.more}>{tools}</span>}
    </div>
  )
}

type PagesProps = {
  readonly total: number | undefined
  readonly page: number
  readonly onPage: (page: number) => void
}

function Pages({ total = 0, page, onPage }: PagesProps) {
  const last = Math.ceil(total / pageSize)
  if (last < 2) return null
  return (
    <nav className={styles.pages} aria-label="Pages of the list">
      <Button size="s" disabled={page <= 1} onClick={() => onPage(page - 1)}>
        Previous
      </Button>
      <span>
        {page} of {last}
      </span>
      <Button size="s" disabled={page >= last} onClick={() => onPage(page + 1)}>
        Next
      </Button>
    </nav>
  )
}

type Fact = readonly [name: string, value: ReactNode]

/** The known values of a row, one below the other; empty ones are left out. */
export function Facts({ of }: { readonly of: readonly Fact[] }) {
  return (
    <dl className={styles.facts}>
      {of
        .filter(([, value]) => value !== null && value !== undefined && value !== '')
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  )
}

/** A value as JSON. */
export function Code({ children }: { readonly children: unknown }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard
    <pre className={styles.code} tabIndex={0}>
      {typeof children === 'string' ? children : JSON.stringify(children, null, 2)}
    </pre>
  )
}

/** "3 min": of so many seconds what matters. */
export function span(seconds: number): string {
  const units = [
    ['days', 86_400],
    ['h', 3600],
    ['min', 60],
  ] as const
  const fit = units.find(([, size]) => seconds >= 2 * size)
  return fit === undefined ? `${Math.round(seconds)} s` : `${Math.round(seconds / fit[1])} ${fit[0]}`
}

export const moment = (value: string | null | undefined): string => (value == null ? '' : timeText(value))
