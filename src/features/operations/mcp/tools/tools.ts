import type { Tool } from '../tool.ts'
import { accessTools } from './access.ts'
import { accountTools } from './accounts.ts'
import { fileTools } from './files.ts'
import { historyTools } from './history.ts'
import { itemTools } from './items.ts'
import { schemaTools } from './schemas.ts'
import { workTools } from './work.ts'
import { workflowTools } from './workflows.ts'

/** THE table of tools, in the order in which clients see them. */
export const tools: readonly Tool[] = [
  ...schemaTools,
  ...itemTools,
  ...historyTools,
  ...fileTools,
  ...accessTools,
  ...workTools,
  ...workflowTools,
  ...accountTools,
]
