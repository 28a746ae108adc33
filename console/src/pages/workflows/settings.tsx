import { useState } from 'react'
import { useCatalog } from '../../app/catalog.ts'
import { Field, Select, TextArea, TextField } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/leaving.tsx'
import type { Conflict } from '../data/conflict.ts'
import { Merge } from '../data/merge.tsx'
import { sameValue } from '../data/values.ts'
import { conflictOf, patchRow } from '../data/writes.ts'
import type { Workflow } from './workflow.ts'
import styles from './workflows.module.css'

type SettingsProps = {
  readonly workflow: Workflow
  readonly etag: string | undefined
  readonly onClose: () => void
  readonly onSaved: () => Promise<unknown>
}

const hookActions = [
  ...['items.create', 'items.update', 'items.delete', 'items.read', 'items.read.one'],
  ...['items.create.after', 'items.update.after', 'items.delete.after', 'items.read.after', 'items.read.one.after'],
]

type Draft = Omit<Workflow, 'id' | 'version' | 'flow_data' | 'variables' | 'options'> & {
  readonly variables: string
  readonly options: string
}

const json = (value: unknown) => JSON.stringify(value ?? {}, null, 2)

const draftOf = ({ id: _id, version: _version, flow_data: _flow, variables, options, ...rest }: Workflow): Draft => ({
  ...rest,
  variables: json(variables),
  options: json(options),
})

/** The name of a workflow, whether it runs, and its trigger. The form sends only the changed values. */
export function Settings({ workflow, etag, onClose, onSaved }: SettingsProps) {
  const catalog = useCatalog()
  const [draft, setDraft] = useState(draftOf(workflow))
  const [conflict, setConflict] = useState<Conflict>()
  const set = (change: Partial<Draft>) => setDraft((before) => ({ ...before, ...change }))
  const names = [...settable, ...columnsOf[draft.trigger_type]]
  const save = async () => {
    const values = { ...draft, variables: JSON.parse(draft.variables), options: JSON.parse(draft.options) }
    const changed = names.filter((name) => !sameValue(values[name] ?? null, workflow[name] ?? null))
    const change = Object.fromEntries(changed.map((name) => [name, values[name] === '' ? null : values[name]]))
    try {
      if (changed.length > 0) await patchRow('svc_Workflow', workflow.id, change, etag)
    } catch (error) {
      setConflict(await conflictOf(error, 'svc_Workflow', workflow.id, { base: workflow, mine: change }))
      // The dialog stays; where both have written, it gives way to the choice.
      throw error
    }
    await onSaved()
  }
  if (conflict !== undefined)
    return (
      <Merge
        fields={catalog.get('svc_Workflow')!.fields}
        conflict={conflict}
        onClose={onClose}
        onMerged={async (merged, version) => {
          if (Object.keys(merged).length > 0) await patchRow('svc_Workflow', workflow.id, merged, version)
          await onSaved()
        }}
      />
    )
  return (
    <FormDialog onClose={onClose} size="l" title="Settings of the workflow" action="Save" onConfirm={save}>
      <div className={styles.settings}>
        <TextField label="Name" value={draft.name} onChange={({ target }) => set({ name: target.value })} />
        <TextField
          label="Description"
          value={draft.description ?? ''}
          onChange={({ target }) => set({ description: target.value })}
        />
        <Choice
          label="State"
          hint="An active workflow keeps every rule, and starts by its trigger."
          value={draft.status}
          options={['draft', 'active', 'inactive']}
          onChange={(status) => set({ status: status as Draft['status'] })}
        />
        <Choice
          label="Trigger"
          value={draft.trigger_type}
          options={['manual', 'webhook', 'schedule', 'hook']}
          onChange={(type) => set({ trigger_type: type as Draft['trigger_type'] })}
        />
        <TriggerFields draft={draft} set={set} />
        {(['variables', 'options'] as const).map((name) => (
          <Field key={name} label={name === 'variables' ? 'Variables' : 'Options'} hint="JSON">
            {(attributes) => (
              <TextArea
                {...attributes}
                isCode
                rows={3}
                value={draft[name]}
                onChange={({ target }) => set({ [name]: target.value })}
              />
            )}
          </Field>
        ))}
      </div>
    </FormDialog>
  )
}

const settable = ['name', 'description', 'status', 'trigger_type', 'variables', 'options'] as const
const columnsOf = {
  manual: [],
  schedule: ['trigger_cron'],
  webhook: ['trigger_webhook_path', 'trigger_webhook_method'],
  hook: ['trigger_hook_collection', 'trigger_hook_action'],
} as const

type TriggerProps = { readonly draft: Draft; readonly set: (change: Partial<Draft>) => void }

function TriggerFields({ draft, set }: TriggerProps) {
  const catalog = useCatalog()
  switch (draft.trigger_type) {
    case 'manual':
      return null
    case 'schedule':
      return (
        <TextField
          label="Cron"
          hint="Minute, hour, day, month, weekday: 0 3 * * *. The zone is options.timezone."
          value={draft.trigger_cron ?? ''}
          onChange={({ target }) => set({ trigger_cron: target.value })}
        />
      )
    case 'webhook':
      return (
        <>
          <TextField
            label="Path"
            hint="It is called at /webhook/ and this."
            value={draft.trigger_webhook_path ?? ''}
            onChange={({ target }) => set({ trigger_webhook_path: target.value })}
          />
          <Choice
            label="Method"
            value={draft.trigger_webhook_method ?? ''}
            options={['', 'GET', 'POST', 'PUT', 'PATCH', 'DELETE']}
            onChange={(method) => set({ trigger_webhook_method: method })}
          />
        </>
      )
    case 'hook':
      return (
        <>
          <Choice
            label="Collection"
            value={draft.trigger_hook_collection ?? ''}
            options={['', ...catalog.keys()]}
            onChange={(name) => set({ trigger_hook_collection: name })}
          />
          <Choice
            label="Action"
            hint="`.after` runs once the change is saved. The others run before it, and a failure refuses the change."
            value={draft.trigger_hook_action ?? ''}
            options={['', ...hookActions]}
            onChange={(action) => set({ trigger_hook_action: action })}
          />
        </>
      )
  }
}

type ChoiceProps = {
  readonly label: string
  readonly hint?: string
  readonly value: string
  readonly options: readonly string[]
  readonly onChange: (value: string) => void
}

function Choice({ label, hint, value, options, onChange }: ChoiceProps) {
  return (
    <Field label={label} hint={hint}>
      {(attributes) => (
        <Select
          {...attributes}
          value={value}
          options={options.map((one) => ({ value: one, label: one === '' ? '—' : one }))}
          onChange={({ target }) => onChange(target.value)}
        />
      )}
    </Field>
  )
}
