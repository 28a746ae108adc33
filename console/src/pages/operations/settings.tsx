import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { client } from '../../app/client.ts'
import { infoQuery } from '../../app/session.ts'
import { Button } from '../../ui/button.tsx'
import { Field, type FieldAttributes, Input, Select, TextArea } from '../../ui/field.tsx'
import { useLeaveQuestion } from '../../ui/leaving.tsx'
import { useRefusal } from '../../ui/refusal.ts'
import { bar } from '../../ui/room.ts'
import { Loading, Problem } from '../../ui/states.tsx'
import { RelationPicker } from '../data/relation-picker.tsx'
import { Upload } from '../data/upload.tsx'
import { FileImage } from '../data/value.tsx'
import { told, typedSince } from '../data/writes.ts'
import styles from './operations.module.css'
import { type Draft, groupsOf, labelOf, type Setting, textOfSetting, valueOfSetting } from './settings-form.ts'

type Values = Readonly<Record<string, unknown>>

/** The settings that exist, and their values. */
async function readSettings(): Promise<{ readonly settings: readonly Setting[]; readonly values: Values }> {
  const [{ data: settings }, { data: values }] = await Promise.all([
    client.request<{ data: readonly Setting[] }>('/settings/keys'),
    client.request<{ data: Values }>('/settings'),
  ])
  return { settings, values }
}

/** A form of all settings; only what was changed is sent. */
export function Settings() {
  const { data, error, refetch } = useQuery({ queryKey: ['operations', 'settings'], queryFn: readSettings })
  if (error !== null) return <Problem error={error} onRetry={() => void refetch()} />
  if (data === undefined) return <Loading />
  return <Form {...data} onSaved={async () => void (await refetch())} />
}

type FormProps = {
  readonly settings: readonly Setting[]
  readonly values: Values
  readonly onSaved: () => Promise<void>
}

function Form({ settings, values, onSaved }: FormProps) {
  const queryClient = useQueryClient()
  const [draft, setDraft] = useState<Draft>({})
  const refusal = useRefusal<HTMLFormElement>(settings.map(({ name }) => name))
  const [isBusy, setBusy] = useState(false)
  const read = settings
    .filter(({ name }) => draft[name] !== undefined)
    .map((setting) => ({ setting, ...valueOfSetting(setting, draft[setting.name]!) }))
  const problems = new Map(
    read.flatMap(({ setting, problem }) => (problem === undefined ? [] : [[setting.name, problem]])),
  )
  const save = async () => {
    setBusy(true)
    refusal.clear()
    try {
      const body = Object.fromEntries(read.map(({ setting, value }) => [setting.name, value]))
      told('Saved', await client.send('/settings', { method: 'PATCH', body }))
      await Promise.all([onSaved(), queryClient.invalidateQueries({ queryKey: infoQuery.queryKey })])
      setDraft((typed) => typedSince(typed, draft))
    } catch (error) {
      refusal.set(error)
    } finally {
      setBusy(false)
    }
  }
  const leaveQuestion = useLeaveQuestion(
    read.length > 0,
    'The settings have changes that are not saved. They are lost.',
  )
  return (
    <form
      ref={refusal.form}
      onSubmit={(event) => {
        event.preventDefault()
        void save()
      }}
    >
      {groupsOf(settings).map(([title, members]) => (
        <section key={title} className={styles.group} aria-label={title}>
          <h2>{title}</h2>
          <div className={styles.form}>
            {members.map((setting) => (
              <Control
                key={setting.name}
                setting={setting}
                text={draft[setting.name] ?? textOfSetting(setting, values[setting.name])}
                problem={problems.get(setting.name) ?? refusal.fields[setting.name]}
                onChange={(text) => {
                  refusal.forget(setting.name)
                  setDraft((before) => ({ ...before, [setting.name]: text }))
                }}
              />
            ))}
          </div>
        </section>
      ))}
      {leaveQuestion}
      <div className={styles.foot} {...bar}>
        {refusal.error !== undefined && <Problem error={refusal.error} shownAt={settings.map(({ name }) => name)} />}
        <Button type="submit" kind="primary" isBusy={isBusy} disabled={read.length === 0 || problems.size > 0}>
          Save
        </Button>
        <Button
          disabled={read.length === 0}
          onClick={() => {
            setDraft({})
            refusal.clear()
          }}
        >
          As it was
        </Button>
      </div>
    </form>
  )
}

/** Whose control leaves no doubt of what is expected. */
const showsItself: ReadonlySet<Setting['kind']> = new Set(['switch', 'text', 'file'])

type ControlProps = {
  readonly setting: Setting
  readonly text: string
  readonly problem: string | undefined
  readonly onChange: (text: string) => void
}

function Control({ setting, text, problem, onChange }: ControlProps) {
  const { name, expected, kind } = setting
  return (
    <Field label={labelOf(name)} note={name} hint={showsItself.has(kind) ? undefined : expected} error={problem}>
      {(attributes) => {
        const common = { ...attributes, value: text }
        if (kind === 'file')
          return <FilePicker attributes={attributes} label={labelOf(name)} file={text} onChange={onChange} />
        if (kind === 'switch')
          return (
            <Select
              {...common}
              options={[{ value: '', label: 'none' }, 'true', 'false']}
              onChange={({ target }) => onChange(target.value)}
            />
          )
        if (kind === 'json' || kind === 'text')
          return (
            <TextArea {...common} isCode={kind === 'json'} rows={4} onChange={({ target }) => onChange(target.value)} />
          )
        return (
          <Input
            {...common}
            type={kind === 'secret' ? 'password' : 'text'}
            inputMode={kind === 'number' ? 'numeric' : undefined}
            autoComplete="off"
            onChange={({ target }) => onChange(target.value)}
          />
        )
      }}
    </Field>
  )
}

type FilePickerProps = {
  readonly attributes: FieldAttributes
  readonly label: string
  /** Its id, or nothing. */
  readonly file: string
  readonly onChange: (id: string) => void
}

/** A file that is there, or one that is uploaded now. */
function FilePicker({ attributes, label, file, onChange }: FilePickerProps) {
  const { data } = useQuery({
    queryKey: ['operations', 'file of a setting', file],
    queryFn: () => client.files.read(file),
    enabled: file !== '',
  })
  const title = data?.title ?? data?.originalFilename ?? file
  return (
    <Upload onEach={(choice) => onChange(String(choice.id))}>
      <RelationPicker
        // It shows the title that it was made with.
        key={title}
        collection="svc_File"
        attributes={attributes}
        label={label}
        value={file === '' ? null : { id: file, title }}
        onChange={(choice) => onChange(choice === null ? '' : String(choice.id))}
      />
      {file !== '' && <FileImage key={`image ${file}`} id={file} />}
    </Upload>
  )
}
