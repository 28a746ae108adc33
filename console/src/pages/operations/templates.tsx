import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { type ReactNode, useEffect, useRef, useState } from 'react'
import { DaybookError } from '../../../../clients/client.ts'
import { client } from '../../app/client.ts'
import { Button } from '../../ui/button.tsx'
import { ConfirmDialog } from '../../ui/dialog.tsx'
import { Checkbox, Field, Select, TextArea, TextField } from '../../ui/field.tsx'
import { FormDialog, useLeaveQuestion } from '../../ui/leaving.tsx'
import { Loading, Note, Problem } from '../../ui/states.tsx'
import { Badge } from '../../ui/table.tsx'
import { notifyError } from '../../ui/toast.tsx'
import type { Conflict } from '../data/conflict.ts'
import { Merge } from '../data/merge.tsx'
import {
  conflictOf,
  createRow,
  deleteRows,
  patchRow,
  readVersion,
  typedSince,
  useBegun,
  type Version,
} from '../data/writes.ts'
import { List, type Listing, moment, refreshLists } from './list.tsx'
import styles from './operations.module.css'
import type { SectionProps } from './operations.tsx'

type Template = {
  readonly id: string
  readonly type: string
  readonly subject: string
  readonly body: string
  readonly isActive: boolean
  readonly tenant_Id: string | null
  readonly description: string | null
  readonly updatedAt: string
}

type TemplateType = {
  readonly type: string
  readonly label: string
  readonly description: string
  readonly variables: readonly string[]
}

const collection = 'svc_Template'

const templates: Listing<Template> = {
  name: 'templates',
  title: 'Type',
  read: async ({ find }) => {
    const { data } = await client.request<{ data: readonly Template[] }>(`/items/${collection}`, {
      query: {
        sort: 'type',
        limit: 500,
        fields: 'id,type,subject,isActive,tenant_Id,description,updatedAt',
        ...(find !== undefined && { search: find, searchFields: 'type,subject' }),
      },
    })
    return { rows: data }
  },
  keyOf: ({ id }) => id,
  titleOf: ({ type }) => type,
  columns: [
    { title: 'Subject', cell: ({ subject }) => subject },
    { title: 'For', cell: ({ tenant_Id }) => (tenant_Id === null ? 'all' : <Badge>one tenant</Badge>) },
    {
      title: 'State',
      cell: ({ isActive }) => <Badge tone={isActive ? 'good' : 'plain'}>{isActive ? 'on' : 'off'}</Badge>,
    },
    { title: 'Changed', cell: ({ updatedAt }) => moment(updatedAt) },
  ],
  find: 'Type or subject',
  detail: () => null,
  empty: { title: 'There is no template', text: 'The built-in texts are used.' },
}

const typesQuery = {
  queryKey: ['operations', 'template types'],
  queryFn: async () =>
    (
      await client.request<{ data: { types: readonly TemplateType[]; commonVariables: readonly string[] } }>(
        '/templates/types',
      )
    ).data,
}

/** Stored templates; an open one is edited beside what it looks like. */
export function Templates(props: SectionProps) {
  const [isNew, setNew] = useState(false)
  const { search, set } = props
  if (search.open !== undefined)
    return <Editor key={search.open} id={search.open} onClose={() => set({ open: undefined })} />
  return (
    <>
      <List
        {...props}
        listing={templates}
        tools={
          <Button size="s" onClick={() => setNew(true)}>
            New template…
          </Button>
        }
      />
      {isNew && <NewTemplate onClose={() => setNew(false)} onMade={(open) => set({ open })} />}
    </>
  )
}

type NewProps = { readonly onClose: () => void; readonly onMade: (id: string) => void }

function NewTemplate({ onClose, onMade }: NewProps) {
  const { data } = useQuery(typesQuery)
  const [type, setType] = useState('custom')
  const [name, setName] = useState('')
  const make = async () => {
    onMade(await createRow(collection, { ...(await startOf(type)), type: name === '' ? type : name }))
    await refreshLists()
  }
  return (
    <FormDialog title="New template" action="Make it" onClose={onClose} onConfirm={make}>
      <Field label="Begins as">
        {(attributes) => (
          <Select
            {...attributes}
            value={type}
            options={(data?.types ?? []).map((one) => ({ value: one.type, label: `${one.label} (${one.type})` }))}
            onChange={({ target }) => setType(target.value)}
          />
        )}
      </Field>
      <TextField
        label="Type"
        hint="Name of the template. Defaults to the type chosen above."
        value={name}
        onChange={({ target }) => setName(target.value)}
      />
    </FormDialog>
  )
}

/** The built-in text of a type, where it has one. */
async function startOf(type: string): Promise<{ readonly subject: string; readonly body: string }> {
  try {
    const { data } = await client.request<{ data: { subject: string; body: string } }>(
      `/templates/default/${encodeURIComponent(type)}`,
    )
    return { subject: data.subject, body: data.body }
  } catch (error) {
    if (error instanceof DaybookError && error.status === 404) return { subject: 'Hello', body: '<p>Hello</p>' }
    throw error
  }
}

type EditorProps = { readonly id: string; readonly onClose: () => void }

function Editor({ id, onClose }: EditorProps) {
  const { data, error, refetch } = useQuery({
    queryKey: ['operations', 'template', id],
    queryFn: () => readVersion(collection, id),
  })
  if (error !== null) return <Problem error={error} onRetry={() => void refetch()} />
  if (data === undefined) return <Loading />
  return <EditorOf live={data} onSaved={async () => (await refetch()).data} onClose={onClose} />
}

type EditorOfProps = {
  readonly live: Version
  /** Gives the template as it is now. */
  readonly onSaved: () => Promise<Version | undefined>
  readonly onClose: () => void
}

type Content = Pick<Template, 'subject' | 'body' | 'isActive'>

function EditorOf({ live, onSaved, onClose }: EditorOfProps) {
  const { data: types } = useQuery(typesQuery)
  const [typed, setTyped] = useState<Partial<Content>>({})
  const { row, etag, begin, beginAt } = useBegun(live, Object.keys(typed).length > 0)
  const template = row as Template
  const { id, type } = template
  const draft: Content = { subject: template.subject, body: template.body, isActive: template.isActive, ...typed }
  const change = (members: Partial<Content>) => {
    begin()
    setTyped((before) => ({ ...before, ...members }))
  }
  const [isBusy, setBusy] = useState(false)
  const [isRemoving, setRemoving] = useState(false)
  const isChanged =
    draft.subject !== template.subject || draft.body !== template.body || draft.isActive !== template.isActive
  const variables = [
    ...(types?.types.find((one) => one.type === type)?.variables ?? []),
    ...(types?.commonVariables ?? []),
  ]
  const [conflict, setConflict] = useState<Conflict>()
  const settle = async () => {
    const [now] = await Promise.all([onSaved(), refreshLists()])
    if (now !== undefined) beginAt(now)
    setTyped((since) => typedSince(since, typed))
  }
  const store = async () => {
    try {
      await patchRow(collection, id, typed, etag)
      await settle()
    } catch (error) {
      const met = await conflictOf(error, collection, id, { base: row, mine: typed })
      if (met === undefined) throw error
      setConflict(met)
    }
  }
  const save = async () => {
    setBusy(true)
    try {
      await store()
    } catch (error) {
      notifyError(error)
    } finally {
      setBusy(false)
    }
  }
  const leaveQuestion = useLeaveQuestion(
    // A template that is deleted takes them with it.
    isChanged && !isRemoving,
    'The template has changes that are not saved. They are lost.',
    ['open'],
  )
  return (
    <>
      {leaveQuestion}
      <div className={styles.tools}>
        <Button size="s" onClick={onClose}>
          All templates
        </Button>
        <strong>{type}</strong>
        <span className={styles.more}>
          <Button size="s" onClick={() => setRemoving(true)}>
            Delete…
          </Button>
          <Button size="s" kind="primary" isBusy={isBusy} disabled={!isChanged} onClick={() => void save()}>
            Save
          </Button>
        </span>
      </div>
      <div className={styles.editor}>
        <div className={styles.detail}>
          <TextField
            label="Subject"
            value={draft.subject}
            onChange={({ target }) => change({ subject: target.value })}
          />
          <Field label="HTML" hint={`Variables: ${variables.join(', ')}`}>
            {(attributes) => (
              <TextArea
                {...attributes}
                isCode
                value={draft.body}
                onChange={({ target }) => change({ body: target.value })}
              />
            )}
          </Field>
          <Checkbox
            label="Used; the built-in text otherwise"
            checked={draft.isActive}
            onChange={({ target }) => change({ isActive: target.checked })}
          />
        </div>
        <Preview id={id} subject={draft.subject} body={draft.body} />
      </div>
      {conflict !== undefined && (
        <Merge
          conflict={conflict}
          onClose={() => setConflict(undefined)}
          onMerged={async (merged, version) => {
            if (Object.keys(merged).length > 0) await patchRow(collection, id, merged, version)
            await settle()
          }}
        />
      )}
      {isRemoving && (
        <ConfirmDialog
          isOpen
          isDangerous
          title={`Delete the template ${type}?`}
          action="Delete"
          onClose={() => setRemoving(false)}
          onConfirm={async () => {
            await deleteRows(collection, [id])
            onClose()
            await refreshLists()
          }}
        >
          Mails of this type have the built-in text then, where there is one.
        </ConfirmDialog>
      )}
    </>
  )
}

type PreviewProps = { readonly id: string; readonly subject: string; readonly body: string }
type Rendered = { readonly subject: string; readonly html: string; readonly text: string }

const typingMs = 300

/** A preview of the mail with sample data, while it is typed. */
function Preview({ id, subject, body }: PreviewProps) {
  const [look, setLook] = useState<'light' | 'dark' | 'text'>('light')
  const typed = useSettled({ subject, body })
  const { data, error } = useQuery({
    queryKey: ['operations', 'preview', id, typed],
    queryFn: async () =>
      (
        await client.request<{ data: Rendered }>(`/templates/${encodeURIComponent(id)}/preview`, {
          method: 'POST',
          body: typed,
        })
      ).data,
    placeholderData: keepPreviousData,
    gcTime: 10_000,
  })
  return (
    <section className={styles.detail} aria-label="Preview">
      <div className={styles.tools}>
        {(['light', 'dark', 'text'] as const).map((one) => (
          <Button key={one} size="s" aria-pressed={look === one} onClick={() => setLook(one)}>
            {one === 'light' ? 'Light' : one === 'dark' ? 'Dark' : 'Text'}
          </Button>
        ))}
      </div>
      {error !== null && <Problem error={error} />}
      {data === undefined && error === null && <Loading />}
      {data !== undefined && (
        <>
          <Note>
            Subject: <strong>{data.subject}</strong>
          </Note>
          {look === 'text' ? <Plain>{data.text}</Plain> : <MailView html={data.html} theme={look} />}
        </>
      )}
    </section>
  )
}

const Plain = ({ children }: { readonly children: ReactNode }) => (
  // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard
  <pre className={styles.code} tabIndex={0}>
    {children}
  </pre>
)

/** HTML in a page of its own, which may run and fetch nothing of it. */
function MailView({ html, theme }: { readonly html: string; readonly theme: 'light' | 'dark' }) {
  const frame = useRef<HTMLIFrameElement>(null)
  const [isReady, setReady] = useState(false)
  useEffect(() => {
    // Its origin is nobody's, so that no other can be named here; what it is told is only this mail.
    if (isReady) frame.current?.contentWindow?.postMessage(html, '*')
  }, [html, isReady])
  return (
    <iframe
      ref={frame}
      className={styles.preview}
      data-theme={theme}
      title="The mail"
      src="/console/mail-view"
      sandbox="allow-scripts allow-popups"
      onLoad={() => setReady(true)}
    />
  )
}

/** A value once it has not changed for a moment. */
function useSettled<Value>(value: Value): Value {
  const [settled, setSettled] = useState(value)
  const text = JSON.stringify(value)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(JSON.parse(text)), typingMs)
    return () => clearTimeout(timer)
  }, [text])
  return settled
}
