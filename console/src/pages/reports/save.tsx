import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { useMe } from '../../app/session.ts'
import { Button } from '../../ui/button.tsx'
import { Dialog } from '../../ui/dialog.tsx'
import { Field, Select, TextField } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/leaving.tsx'
import { Loading, Problem } from '../../ui/states.tsx'
import { notify } from '../../ui/toast.tsx'
import { rolesQuery } from '../permissions/rules.ts'
import type { Report } from './question.ts'
import { create, type Dashboard, type Saved, share } from './saved.ts'

type SaveProps = {
  readonly page: 'reports' | 'dashboards'
  readonly content: Report | Dashboard
  readonly onSaved: (id: string) => void
  readonly onClose: () => void
}

/** Keeps a report or a dashboard under a name. */
export function SaveDialog({ page, content, onSaved, onClose }: SaveProps) {
  const [name, setName] = useState('')
  const isReport = page === 'reports'
  return (
    <FormDialog
      title={isReport ? 'Save the report' : 'New dashboard'}
      action={isReport ? 'Save' : 'Make it'}
      isDisabled={name.trim() === ''}
      onClose={onClose}
      onConfirm={async () => onSaved(await create(page, name.trim(), content))}
    >
      <TextField label="Name" value={name} maxLength={100} onChange={({ target }) => setName(target.value)} />
    </FormDialog>
  )
}

type ShareProps = { readonly saved: Saved<unknown>; readonly onClose: () => void }

/** Shares with a role: its users see it and cannot change it, and it gives them no rows. */
function ShareDialog({ saved, onClose }: ShareProps) {
  const roles = useQuery(rolesQuery)
  const [role, setRole] = useState(saved.role_Id ?? '')
  const apply = async () => {
    await share(saved.id, role === '' ? null : role)
    notify(role === '' ? 'Not shared any more' : 'Shared')
  }
  if (roles.data === undefined)
    return (
      <Dialog isOpen title="Share" onClose={onClose}>
        {roles.error === null ? <Loading lines={2} /> : <Problem error={roles.error} />}
      </Dialog>
    )
  return (
    <FormDialog
      title={`Share ${saved.name}`}
      description="Everybody sees their own figures: those of the rows that they may read."
      action="Share"
      onClose={onClose}
      onConfirm={apply}
    >
      <Field label="With the role">
        {(attributes) => (
          <Select
            {...attributes}
            value={role}
            options={[
              { value: '', label: 'nobody' },
              ...roles.data.map(({ id, name }) => ({ value: id, label: name })),
            ]}
            onChange={({ target }) => setRole(target.value)}
          />
        )}
      </Field>
    </FormDialog>
  )
}

/** The button of administrators that shares what is saved. */
export function ShareButton({ saved }: { readonly saved: Saved<unknown> }) {
  const [isOpen, setOpen] = useState(false)
  if (!useMe().isAdmin) return null
  return (
    <>
      <Button size="s" onClick={() => setOpen(true)}>
        {saved.role_Id === null ? 'Share…' : 'Shared…'}
      </Button>
      {isOpen && <ShareDialog saved={saved} onClose={() => setOpen(false)} />}
    </>
  )
}
