import { Plus, Trash2 } from 'lucide-react'
import { type ReactNode, useState } from 'react'
import { Button, IconButton } from '../../ui/button.tsx'
import { Checkbox, Field, Select, TextArea, TextField } from '../../ui/field.tsx'
import { FormDrawer } from '../../ui/leaving.tsx'
import { Empty } from '../../ui/states.tsx'
import { Badge, Table } from '../../ui/table.tsx'
import { constraintAddition, constraintRemoval, indexAddition, indexRemoval } from './changes.ts'
import type { PartProps } from './collection.tsx'
import { type Constraint, columnsOf, constraintsOf, type Index, indexName, isAdded } from './definitions.ts'
import { Tools } from './entries.tsx'
import styles from './schema.module.css'

type ListProps = PartProps & { readonly isAdding: boolean }

/** Indexes beyond those that unique fields and relations have by themselves. */
export function Indexes({ definition: { collectionName, schema }, onChange, onOpen, isAdding }: ListProps) {
  const rows = schema.indexes ?? []
  return (
    <div className={styles.list}>
      <Tools>
        <Button kind="primary" onClick={() => onOpen({ add: true })}>
          <Plus aria-hidden="true" /> Add an index
        </Button>
      </Tools>
      {rows.length === 0 ? (
        <Empty title="No indexes of its own">
          <p>Keys, unique fields and relations have theirs without being listed.</p>
        </Empty>
      ) : (
        <Table
          label="Indexes"
          rows={rows}
          keyOf={(index) => indexName(collectionName, index)}
          columns={[
            { title: 'Name', cell: (index) => <code>{indexName(collectionName, index)}</code> },
            { title: 'Fields', cell: ({ fields }) => fields.join(', ') },
            {
              title: 'Kind',
              cell: (index) => (
                <span className={styles.marks}>
                  <Badge>{index.type ?? 'btree'}</Badge>
                  {index.unique === true && <Badge>unique</Badge>}
                  {isAdded(index) && <Badge tone="info">by the server</Badge>}
                </span>
              ),
            },
            {
              title: <span className="visually-hidden">Change</span>,
              cell: (index) =>
                isAdded(index) ? null : (
                  <IconButton
                    size="s"
                    label={`Remove ${indexName(collectionName, index)}`}
                    onClick={() => onChange(indexRemoval(collectionName, indexName(collectionName, index)))}
                  >
                    <Trash2 aria-hidden="true" />
                  </IconButton>
                ),
            },
          ]}
        />
      )}
      {isAdding && (
        <IndexForm
          names={columnsOf(schema).map(({ name }) => name)}
          onDone={(index) => onChange(indexAddition(collectionName, index))}
          onClose={() => onOpen({})}
        />
      )}
    </div>
  )
}

type FormProps<Value> = {
  readonly names: readonly string[]
  readonly onDone: (value: Value) => void
  readonly onClose: () => void
}

function IndexForm({ names, onDone, onClose }: FormProps<Index>) {
  const [fields, setFields] = useState<readonly string[]>([])
  const [isUnique, setUnique] = useState(false)
  const [type, setType] = useState('btree')
  const [name, setName] = useState('')
  const index: Index = {
    fields,
    ...(name.trim() !== '' && { name: name.trim() }),
    ...(isUnique && { unique: true }),
    ...(type !== 'btree' && { type }),
  }
  return (
    <Form
      title="New index"
      isChanged={JSON.stringify(index) !== '{"fields":[]}'}
      isWhole={fields.length > 0}
      onDone={() => onDone(index)}
      onClose={onClose}
    >
      <ColumnChoice names={names} chosen={fields} onChange={setFields} />
      <Checkbox
        label="No two rows have the same values"
        checked={isUnique}
        onChange={({ target }) => setUnique(target.checked)}
      />
      <Field label="Kind">
        {(attributes) => (
          <Select
            {...attributes}
            value={type}
            onChange={({ target }) => setType(target.value)}
            options={[
              { value: 'btree', label: 'btree: equal, between, sorted' },
              { value: 'hash', label: 'hash: equal' },
              { value: 'gin', label: 'gin: JSON and lists' },
              { value: 'gist', label: 'gist: ranges and shapes' },
            ]}
          />
        )}
      </Field>
      <TextField
        label="Name"
        hint="Empty for one of its fields."
        value={name}
        onChange={({ target }) => setName(target.value)}
      />
    </Form>
  )
}

/** Rules of rows beyond single fields. */
export function Constraints({ definition: { collectionName, schema }, onChange, onOpen, isAdding }: ListProps) {
  const rows = constraintsOf(collectionName, schema)
  return (
    <div className={styles.list}>
      <Tools>
        <Button kind="primary" onClick={() => onOpen({ add: true })}>
          <Plus aria-hidden="true" /> Add a constraint
        </Button>
      </Tools>
      {rows.length === 0 ? (
        <Empty title="No constraints">
          <p>A constraint holds for rows, whoever writes them: fields that are unique together, or an SQL condition.</p>
        </Empty>
      ) : (
        <Table
          label="Constraints"
          rows={rows}
          keyOf={({ name }) => name}
          columns={[
            { title: 'Name', cell: ({ name }) => <code>{name}</code> },
            { title: 'Kind', cell: ({ type }) => type },
            { title: 'Holds', cell: ({ expression, fields }) => <code>{expression ?? fields?.join(', ')}</code> },
            {
              title: <span className="visually-hidden">Change</span>,
              cell: ({ name }) => (
                <IconButton
                  size="s"
                  label={`Remove ${name}`}
                  onClick={() => onChange(constraintRemoval(collectionName, name))}
                >
                  <Trash2 aria-hidden="true" />
                </IconButton>
              ),
            },
          ]}
        />
      )}
      {isAdding && (
        <ConstraintForm
          names={columnsOf(schema).map(({ name }) => name)}
          onDone={(constraint) => onChange(constraintAddition(collectionName, constraint))}
          onClose={() => onOpen({})}
        />
      )}
    </div>
  )
}

function ConstraintForm({ names, onDone, onClose }: FormProps<Constraint>) {
  const [type, setType] = useState('check')
  const [fields, setFields] = useState<readonly string[]>([])
  const [expression, setExpression] = useState('')
  const [name, setName] = useState('')
  const named = name.trim() === '' ? {} : { name: name.trim() }
  const isCheck = type === 'check'
  const isWhole = isCheck ? expression.trim() !== '' && name.trim() !== '' : fields.length > 0
  return (
    <Form
      title="New constraint"
      isChanged={fields.length > 0 || expression !== '' || name !== ''}
      isWhole={isWhole}
      onDone={() => onDone(isCheck ? { type, ...named, expression } : { type, ...named, fields })}
      onClose={onClose}
    >
      <Field label="Kind">
        {(attributes) => (
          <Select
            {...attributes}
            value={type}
            onChange={({ target }) => setType(target.value)}
            options={[
              { value: 'check', label: 'Every row meets a condition' },
              { value: 'unique', label: 'Fields are unique together' },
            ]}
          />
        )}
      </Field>
      {isCheck ? (
        <Field label="Condition" note="SQL" hint={'Over columns of the row, such as "endsOn" > "startsOn".'}>
          {(attributes) => (
            <TextArea
              {...attributes}
              isCode
              value={expression}
              onChange={({ target }) => setExpression(target.value)}
            />
          )}
        </Field>
      ) : (
        <ColumnChoice names={names} chosen={fields} onChange={setFields} />
      )}
      <TextField
        label="Name"
        hint={isCheck ? 'A refusal names it.' : 'Empty for one of its fields.'}
        value={name}
        onChange={({ target }) => setName(target.value)}
      />
    </Form>
  )
}

type FormFrameProps = {
  readonly title: string
  readonly isChanged: boolean
  readonly isWhole: boolean
  readonly onDone: () => void
  readonly onClose: () => void
  readonly children: ReactNode
}

function Form({ title, isChanged, isWhole, onDone, onClose, children }: FormFrameProps) {
  return (
    <FormDrawer
      isChanged={isChanged}
      onClose={onClose}
      title={title}
      footer={
        <Button kind="primary" disabled={!isWhole} onClick={onDone}>
          Review…
        </Button>
      }
    >
      <div className={styles.form}>{children}</div>
    </FormDrawer>
  )
}

type ColumnChoiceProps = {
  readonly names: readonly string[]
  readonly chosen: readonly string[]
  readonly onChange: (chosen: readonly string[]) => void
}

/** Several columns, in the order in which they are chosen. */
function ColumnChoice({ names, chosen, onChange }: ColumnChoiceProps) {
  return (
    <fieldset className={styles.choices}>
      <legend>Fields, in this order{chosen.length > 0 ? `: ${chosen.join(', ')}` : ''}</legend>
      {names.map((name) => (
        <Checkbox
          key={name}
          label={name}
          checked={chosen.includes(name)}
          onChange={({ target }) =>
            onChange(target.checked ? [...chosen, name] : chosen.filter((other) => other !== name))
          }
        />
      ))}
    </fieldset>
  )
}
