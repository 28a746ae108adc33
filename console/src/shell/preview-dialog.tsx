import { useState } from 'react'
import { client } from '../app/client.ts'
import { beginAnew } from '../app/session.ts'
import type { Choice } from '../pages/data/draft.ts'
import { RelationPicker } from '../pages/data/relation-picker.tsx'
import { Button } from '../ui/button.tsx'
import { Dialog } from '../ui/dialog.tsx'
import { Field, Select } from '../ui/field.tsx'
import { Problem } from '../ui/states.tsx'
import styles from './preview.module.css'

/** Chooses whose view to look at. */
export function PreviewDialog({ isOpen, onClose }: { readonly isOpen: boolean; readonly onClose: () => void }) {
  const [by, setBy] = useState<'user' | 'role'>('user')
  const [choice, setChoice] = useState<Choice | null>(null)
  const [error, setError] = useState<unknown>()
  const start = async () => {
    setError(undefined)
    try {
      await client.request('/auth/preview', { method: 'POST', body: { [by]: String(choice?.id) } })
      beginAnew()
    } catch (failure) {
      setError(failure)
    }
  }
  return (
    <Dialog
      isOpen={isOpen}
      onClose={onClose}
      title="See as somebody else"
      description="Everything is shown with their rights, and nothing can be changed meanwhile. The log says who looked as whom."
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" disabled={choice === null} onClick={() => void start()}>
            See as {choice?.title ?? 'them'}
          </Button>
        </>
      }
    >
      <div className={styles.form}>
        <Field label="Who">
          {(attributes) => (
            <Select
              {...attributes}
              value={by}
              onChange={({ target }) => {
                setBy(target.value === 'role' ? 'role' : 'user')
                setChoice(null)
              }}
              options={[
                { value: 'user', label: 'A user' },
                { value: 'role', label: 'Anybody in a role' },
              ]}
            />
          )}
        </Field>
        <Field label={by === 'user' ? 'User' : 'Role'}>
          {(attributes) => (
            <RelationPicker
              key={by}
              attributes={attributes}
              collection={by === 'user' ? 'svc_User' : 'svc_Role'}
              label={by === 'user' ? 'User' : 'Role'}
              value={choice}
              onChange={setChoice}
            />
          )}
        </Field>
        {error !== undefined && <Problem error={error} />}
      </div>
    </Dialog>
  )
}
